#include "cuda_builtins.h"
