"""apportion: which device should do how much of this work, and how sure are we?

The public names load when they are first used, so that importing the package costs nothing. Type checkers
see them all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from apportion.advise.explain import Explanation, explain
    from apportion.advise.found_devices import devices
    from apportion.advise.learned_policy import session, share, together
    from apportion.advise.prediction import Prediction
    from apportion.advise.predictor import predict, predict_all
    from apportion.advise.queries import Query
    from apportion.advise.relative_answers import Relative
    from apportion.advise.relative_answers import predict as relative_performance
    from apportion.advise.tuning import Tunable, Tuning, tune
    from apportion.client import Client
    from apportion.coexecution.bound import Execution
    from apportion.coexecution.session import Session
    from apportion.coexecution.session_array import SessionArray
    from apportion.coexecution.sharing import Together
    from apportion.errors import ApportionError
    from apportion.learn.relative.profile import Profile
    from apportion.measure.results import Tolerance
    from apportion.measure.space import Range, Space
    from apportion.program import graph_of
    from apportion.program.analysis import AnalysisRun
    from apportion.program.analysis import run as analyze
    from apportion.program.compile import CompileOptions
    from apportion.program.graph import ProgramGraph
    from apportion.program.source import Source
    from apportion.runtime.base import DeviceInfo, LocalMemory

__version__ = "0.1.0"

__all__ = [
    "AnalysisRun",
    "ApportionError",
    "Client",
    "CompileOptions",
    "DeviceInfo",
    "Execution",
    "Explanation",
    "LocalMemory",
    "Prediction",
    "Profile",
    "ProgramGraph",
    "Query",
    "Range",
    "Relative",
    "Session",
    "SessionArray",
    "Source",
    "Space",
    "Together",
    "Tolerance",
    "Tunable",
    "Tuning",
    "__version__",
    "analyze",
    "devices",
    "explain",
    "graph_of",
    "predict",
    "predict_all",
    "relative_performance",
    "session",
    "share",
    "together",
    "tune",
]

_HOMES = {
    "AnalysisRun": "apportion.program.analysis:AnalysisRun",
    "ApportionError": "apportion.errors:ApportionError",
    "Client": "apportion.client:Client",
    "CompileOptions": "apportion.program.compile:CompileOptions",
    "DeviceInfo": "apportion.runtime.base:DeviceInfo",
    "Execution": "apportion.coexecution.bound:Execution",
    "Session": "apportion.coexecution.session:Session",
    "SessionArray": "apportion.coexecution.session_array:SessionArray",
    "session": "apportion.advise.learned_policy:session",
    "Explanation": "apportion.advise.explain:Explanation",
    "LocalMemory": "apportion.runtime.base:LocalMemory",
    "Prediction": "apportion.advise.prediction:Prediction",
    "Profile": "apportion.learn.relative.profile:Profile",
    "ProgramGraph": "apportion.program.graph:ProgramGraph",
    "Query": "apportion.advise.queries:Query",
    "Range": "apportion.measure.space:Range",
    "Relative": "apportion.advise.relative_answers:Relative",
    "Source": "apportion.program.source:Source",
    "Space": "apportion.measure.space:Space",
    "Together": "apportion.coexecution.sharing:Together",
    "Tolerance": "apportion.measure.results:Tolerance",
    "Tunable": "apportion.advise.tuning:Tunable",
    "Tuning": "apportion.advise.tuning:Tuning",
    "analyze": "apportion.program.analysis:run",
    "devices": "apportion.advise.found_devices:devices",
    "explain": "apportion.advise.explain:explain",
    "graph_of": "apportion.program:graph_of",
    "predict": "apportion.advise.predictor:predict",
    "predict_all": "apportion.advise.predictor:predict_all",
    "relative_performance": "apportion.advise.relative_answers:predict",
    "share": "apportion.advise.learned_policy:share",
    "together": "apportion.advise.learned_policy:together",
    "tune": "apportion.advise.tuning:tune",
}
"A public name: where it is defined. A test holds this equal to the imports above and to `__all__`."

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'apportion' has no attribute {name!r}")
        module, _, attribute = home.partition(":")
        value = getattr(import_module(module), attribute)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
