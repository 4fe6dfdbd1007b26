// The native extension: program graphs from LLVM IR text, and the analyses over them.
// Each part binds its own functions; this file only gathers them.
#include "bindings.h"

NB_MODULE(_native, module) {
    module.doc() = "Program graphs from LLVM IR text, and data-flow analyses, in C++.";
    bind_llvm(module);
    bind_analysis(module);
}
