#pragma once
#include "cuda_builtins.h"
extern "C" APPORTION_BOTH int printf(const char *, ...);
