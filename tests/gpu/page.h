/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page.h - the report of rows (rows.h): one document of JSON, and one page that refers to
 * nothing outside itself and needs no script.
 */
#ifndef BERTH_TESTS_GPU_PAGE_H
#define BERTH_TESTS_GPU_PAGE_H

/* 0, or 1 when a file cannot be read, written or understood; that is printed. */
int gpu_page_write(const char *rows, const char *report, const char *page);

#endif
