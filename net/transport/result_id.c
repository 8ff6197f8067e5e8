/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transport/result_id.h"

bool result_id_same_part(const struct result_id *left, const struct result_id *right)
{
    return left->fragment == right->fragment && left->owner == right->owner && left->version == right->version &&
           left->epoch == right->epoch;
}

bool result_id_equal(const struct result_id *left, const struct result_id *right)
{
    return result_id_same_part(left, right) && digest_equal(&left->digest, &right->digest);
}

bool part_result_equal(const struct part_result *left, const struct part_result *right)
{
    return left->shards == right->shards && result_id_equal(&left->id, &right->id);
}

int result_id_order(const struct result_id *left, const struct result_id *right)
{
    if (left->fragment != right->fragment)
        return left->fragment < right->fragment ? -1 : 1;
    if (left->owner != right->owner)
        return left->owner < right->owner ? -1 : 1;
    return left->epoch < right->epoch ? -1 : left->epoch > right->epoch;
}
