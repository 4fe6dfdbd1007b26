#include "bindings.h"
void bind_analysis(nanobind::module_&) {}
