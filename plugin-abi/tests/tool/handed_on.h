/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What handed_on.c passes and mock_libmpi.c expects: argument `i` of call number `call`, and what that call answers. */
#define ARGUMENT(call, i) (0x1000L * ((call) + 1) + 0x10 * ((i) + 1))
#define ANSWER(call) (7000 + (call))
