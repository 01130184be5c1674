/* SPDX-License-Identifier: Apache-2.0 */
/* sys/le.h - little-endian integers at any address: the byte order of all k3 files. */
#ifndef K3_SYS_LE_H
#define K3_SYS_LE_H

#include <stdint.h>

static inline void k3_put32(unsigned char *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (unsigned char)(v >> 8 * i);
}

static inline void k3_put64(unsigned char *p, uint64_t v)
{
	k3_put32(p, (uint32_t)v);
	k3_put32(p + 4, (uint32_t)(v >> 32));
}

static inline uint32_t k3_get32(const unsigned char *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t k3_get64(const unsigned char *p)
{
	return k3_get32(p) | (uint64_t)k3_get32(p + 4) << 32;
}

#endif
