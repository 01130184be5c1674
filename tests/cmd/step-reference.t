#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# k3-step against the reference model, on checkpoints of many shapes.
. tests/cmd/lib.sh
. tests/cmd/numpy.sh
PYTHONPATH=$top/scripts:$top/tests/reference TMPDIR=$tmp
export PYTHONPATH TMPDIR
"$py" tests/reference/agree.py
