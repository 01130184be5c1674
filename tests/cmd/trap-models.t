#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checkpoints that are made to spring traps: k3-step against the reference model.
. tests/cmd/lib.sh
. tests/cmd/numpy.sh
PYTHONPATH=$top/scripts:$top/tests/reference TMPDIR=$tmp
export PYTHONPATH TMPDIR
"$py" tests/reference/trapmodels.py
