// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Under which sanitizer this is compiled. g++ says so by a macro, clang++ by a feature.
#if defined(__SANITIZE_ADDRESS__)
#define OMNI_TEST_ADDRESSES 1
#elif defined(__SANITIZE_THREAD__)
#define OMNI_TEST_THREADS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define OMNI_TEST_ADDRESSES 1
#elif __has_feature(thread_sanitizer)
#define OMNI_TEST_THREADS 1
#endif
#endif
