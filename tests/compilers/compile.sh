#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
#
# compile.sh COMPILER "FLAGS" [--optimise | --headers]: whether it takes a program with every form of the call, or every header alone,
# without a warning. Checks the syntax only; with --optimise the engines are compiled, too, as a Release of CMake is: g++ has warnings
# that only its optimiser finds.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
compiler=$1
read -ra flags <<< "$2"
flags=("$compiler" -std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror "${flags[@]}" -Iinclude)
if [ "${3:-}" != --headers ]; then
  "${flags[@]}" tests/compilers/forms.cpp && "${flags[@]}" -DOMNI_COMPILED tests/consumer/compiled/calls.cpp || exit
  [ "${3:-}" != --optimise ] || "${flags[@]/-fsyntax-only/-c}" -O3 -DNDEBUG cmake/compiled.cpp -o /dev/null
  exit
fi

# A header of CUDA's or Thrust's needs more than a compiler; Boost.MPI is not there for every processor.
failed=0
while read -r header; do
  printf '#include <omni/%s>\n#include <omni/%s>\n' "$header" "$header" | "${flags[@]}" -x c++ - || { echo "$compiler: omni/$header alone"; failed=1; }
done < <(cd include/omni && find . -name '*.hpp' ! -path './cuda/*' ! -name 'thrust*' ! -name 'boost*' | sed 's|^\./||' | sort)
exit $failed
