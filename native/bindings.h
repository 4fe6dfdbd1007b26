// What each part of the extension offers to module.cpp.
#pragma once
#include <nanobind/nanobind.h>

void bind_llvm(nanobind::module_& module);
void bind_analysis(nanobind::module_& module);
void bind_hlo(nanobind::module_& module);
void bind_kernel_count(nanobind::module_& module);
void bind_process_trace(nanobind::module_& module);
void bind_schedule(nanobind::module_& module);
void bind_simulate(nanobind::module_& module);
