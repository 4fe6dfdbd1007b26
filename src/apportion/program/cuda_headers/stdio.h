#pragma once
#include "cuda_builtins.h"
