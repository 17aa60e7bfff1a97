/* SPDX-License-Identifier: Apache-2.0 */
/* compute.h - what the parts of computing on devices share: compute*.c, devices_api.c. */
#ifndef BERTH_LOADER_COMPUTE_H
#define BERTH_LOADER_COMPUTE_H

#include "kernels/device.h"
#include "quant/format.h"

/* One of the caller's. ARGUMENT: `devices` is NULL, or `number` that of none. */
berth_status berthi_find_device(berth_devices *devices, uint32_t number,
                                berthi_device **out, berth_error *error);
/* Asks for an operation; UNSUPPORTED: this device has it not. */
berth_status berthi_launch_on(berthi_device *device, const berthi_request *request,
                              void *stream, berth_error *error);
/* Asks for several that need nothing of each other, and are operations of a device. */
berth_status berthi_launch_together_on(berthi_device *device, const berthi_request *requests,
                                       uint32_t count, void *stream, berth_error *error);

/* Where the part that has this role lies now; NULL: nowhere, or there is none. */
const void *berthi_part_of(const berth_model_tensor *tensor, int32_t role);
/* What computes a tensor of the model. */
berthi_device *berthi_device_of(const berth_model *model, const berth_model_tensor *tensor);

/* One product with a tensor of a model, or the question what it needs: compute_product.c */
typedef struct berthi_product {
    berth_model_tensor tensor; /* as it lies now */
    berth_multiply step;
    uint64_t rows;
    uint64_t columns;
    /* In the scratch: */
    float *floats;        /* 4-bit */
    int8_t *codes;        /* INT8: of the inputs, as what follows */
    float *input_maximum;
    int32_t *sums;
    berthi_outlier_room outliers;
} berthi_product;

static inline bool
berthi_product_is_4bit(const berthi_product *product)
{
    return berthi_format_is_4bit(product->tensor.encoding);
}

/* EINVAL, without words: there is no such berth. */
berth_status berthi_product_take(berthi_product *product, const berth_model *model,
                                 uint64_t berth);
/* What a device does not see: it is enough, and where it may be. Any will do for 0 bytes. */
berth_status berthi_scratch_check(const void *scratch, uint64_t bytes, uint64_t needed,
                                  berth_error *error);
/*
 * Of one that has been taken, whose step is the caller's: all that can be wrong, and its scratch
 * divided. `name`: what the caller knows its berth by.
 */
berth_status berthi_product_check(berthi_product *product, const char *name,
                                  berth_error *error);
/* Bytes of scratch of a checked one; with `memory`, where it is. */
uint64_t berthi_product_divide(berthi_product *product, uint8_t *memory);
/* The same of a berth, by the step's dtype and count; 0: it cannot be. */
uint64_t berthi_product_measure(berthi_product *product, const berth_model *model,
                                uint64_t berth);
berthi_request berthi_product_ask_4bit(const berthi_product *product);
/* Checked, of one device; BERTH_MULTIPLY_TOGETHER at most, which may share their scratch. */
berth_status berthi_products_launch(const berthi_product *products, uint32_t count,
                                    berthi_device *device, void *stream, berth_error *error);

#endif
