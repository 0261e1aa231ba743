/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paired pages of MLC NAND.
 *
 * A word line holds two pages: the LSB page, programmed first, and the MSB
 * page some pages later. A power cut while the MSB page is being programmed
 * takes the LSB page with it, however long that has been there. The order is
 * the usual one of 2-bit NAND, where MSB = LSB + 3 but at both ends:
 *
 *	LSB	0 1 3 5 7 ... N-5 N-3
 *	MSB	2 4 6 8 10 .. N-2 N-1
 */
#ifndef VCACHE_FW_PAIRING_H
#define VCACHE_FW_PAIRING_H

#include <stdint.h>

#define VS_NO_PAIR UINT32_MAX

/**
 * vs_pair_of_msb - the page that shares a word line with an MSB page
 * @pages: of the block, even, at least 4
 * @page: any page of it
 *
 * Return: the LSB page, lower than @page; VS_NO_PAIR if @page is an LSB page.
 */
static inline uint32_t vs_pair_of_msb(uint32_t pages, uint32_t page)
{
	if (page == pages - 1)
		return pages - 3;
	if (page == 2)
		return 0;
	return page % 2 || page == 0 ? VS_NO_PAIR : page - 3;
}

#endif /* VCACHE_FW_PAIRING_H */
