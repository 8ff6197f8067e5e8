#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Stands for the tests of emulated kernels where there is no C++ compiler to build them.
echo "the CUDA kernels were not emulated: no C++ compiler beside ${CC:-cc} (conf/prereqs.sh --tests installs one)"
exit 77
