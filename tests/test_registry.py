"""Names that become code when asked for."""

from __future__ import annotations

import sys

import pytest

from apportion.errors import InvalidSetting, MissingPackage, UnknownName
from apportion.registry import Registry


@pytest.fixture
def plug_in(installed):
    """An installed package that adds the fruit 'fig' and an 'apple' of its own through entry points."""
    installed(
        {"orchard.py": "fig = 'a fig'\napple = 'their apple'\n"},
        "[apportion.fruit]\nfig = orchard:fig\napple = orchard:apple\n",
    )


def test_an_entry_is_loaded_by_its_name():
    assert Registry("function", {"square root": "math:sqrt"}).load("square root")(9) == 3


def test_listing_loads_nothing():
    registry = Registry("thing", {"that": "this_module_does_not_exist:that"})
    assert registry.names() == ["that"]
    assert list(registry) == ["that"]
    assert "that" in registry
    assert "this" not in registry


def test_using_one_entry_loads_one_module():
    registry = Registry("module", {"one": "wave:open", "two": "sunau:open"})
    for module in ("wave", "sunau"):
        sys.modules.pop(module, None)
    registry.load("one")
    assert "wave" in sys.modules
    assert "sunau" not in sys.modules


def test_an_unknown_name_suggests_a_near_one():
    with pytest.raises(UnknownName) as caught:
        Registry("device", {"opencl": "math:sqrt", "recorded": "math:sqrt"}).load("opncl")
    assert str(caught.value) == (
        "No device called 'opncl'. Did you mean 'opencl'? There are: opencl, recorded."
    )


def test_a_missing_package_is_reported_with_the_extra_that_brings_it():
    registry = Registry("device", {"cuda": "no_such_driver:Cuda"}, {"cuda": "cuda"})
    with pytest.raises(MissingPackage) as caught:
        registry.load("cuda")
    assert str(caught.value) == (
        "The device 'cuda' needs the package 'no_such_driver'. Install it with: pip install 'apportion[cuda]'"
    )


def test_a_missing_package_without_an_extra_of_its_own_asks_for_all():
    with pytest.raises(MissingPackage, match=r"pip install 'apportion\[all\]'"):
        Registry("device", {"cuda": "no_such_driver:Cuda"}).load("cuda")


def test_a_missing_module_of_our_own_is_a_bug_and_stays_one():
    with pytest.raises(ModuleNotFoundError, match=r"apportion\.no_such_module") as caught:
        Registry("device", {"cuda": "apportion.no_such_module:Cuda"}).load("cuda")
    assert not isinstance(caught.value, MissingPackage)


def test_an_entry_without_an_attribute_is_refused():
    with pytest.raises(InvalidSetting) as caught:
        Registry("device", {"cuda": "math"}).load("cuda")
    assert str(caught.value) == "The device 'cuda' is written 'math', not 'module:attribute'"


@pytest.mark.usefixtures("plug_in")
def test_installed_packages_add_entries_after_ours_and_never_replace_them():
    registry = Registry("fruit", {"apple": "math:pi"})
    assert registry.names() == ["apple", "fig"]
    assert registry.load("fig") == "a fig"
    assert registry.load("apple") == 3.141592653589793


@pytest.mark.usefixtures("plug_in")
def test_an_unknown_name_lists_what_installed_packages_add():
    with pytest.raises(UnknownName, match=r"Did you mean 'fig'\? There are: apple, fig\."):
        Registry("fruit", {"apple": "math:pi"}).load("figg")
