/* SPDX-License-Identifier: Apache-2.0 */
/* planned_train.h - plans for training, and what has to hold of any of them. */
#ifndef BERTH_TESTS_PLANNED_TRAIN_H
#define BERTH_TESTS_PLANNED_TRAIN_H

#include "tests/planned.h"

/* Nothing is kept free; 64 tokens. */
berth_plan_options planned_train_options(const berth_train_options *train,
                                         const char *max_memory);
/* Adapters have rank 8. */
berth_train_options planned_train(int32_t method, int32_t precision, const char *optimizer);

/*
 * Every byte that the plan has for an optimizer is one that the optimizer takes, whose
 * devices `words` opens: as many as the plan has GPUs.
 */
void planned_check_optimizer(const planned *p, const char *words, uint32_t device_count);

#endif
