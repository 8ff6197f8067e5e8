/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/company.h"

#include "tests/lib/testlib.h"

struct company company;

void company_begin(const char *name, uint32_t count, bool plan)
{
    company.run = isle_run_new(name, count, NULL);
    company.b = played_open(company.run, B, 0, NULL);
    company.c = count > C ? played_open(company.run, C, 0, NULL) : NULL;
    company.a = isle_open(company.run, A, NULL, 0);
    if (plan)
        isle_know_plan(company.a);
    /* Its own greetings on both sides of the control connection are through. */
    isle_wait(played_heard_type(company.b, WIRE_HELLO));
    if (company.c != NULL)
        isle_wait(played_heard_type(company.c, WIRE_HELLO));
}

void company_end(void)
{
    isle_close(company.a);
    if (company.b != NULL)
        played_close(company.b);
    if (company.c != NULL)
        played_close(company.c);
    isle_run_free(company.run);
}

struct peer_info company_info(uint32_t peer)
{
    return peers_info(company.a->peers, peer);
}

void company_say(struct played *played)
{
    played_say(played, A);
    played_settle(played, A, WIRE_DONE);
}
