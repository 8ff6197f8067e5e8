/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forge: what is wrong, and looks right.
 */
#ifndef TESTS_LIB_FORGE_H
#define TESTS_LIB_FORGE_H

/* Changes the values of fragment 1's checkpoint, and makes its checksums right: only the comparison with the others
 * shows it. */
void forge_checkpoint(const char *state_folder);

#endif
