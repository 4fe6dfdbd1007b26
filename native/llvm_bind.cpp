#include "bindings.h"
void bind_llvm(nanobind::module_&) {}
