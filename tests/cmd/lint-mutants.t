#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/long/mutants names lines and tests that are there; make check-mutants runs it.
sh tests/long/mutate.sh -n
