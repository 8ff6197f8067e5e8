#include "tests/lib/company.h"

#include "tests/lib/testlib.h"

struct company company_begin(const char *name, uint32_t count, bool plan)
{
    struct company company = {.run = isle_run_new(name, count, NULL)};
    company.b = played_open(company.run, B, 0, NULL);
    company.c = count > C ? played_open(company.run, C, 0, NULL) : NULL;
    company.a = isle_open(company.run, A, NULL, 0);
    if (plan)
        isle_know_plan(company.a);
    /* Its own greetings on both sides of the control connection are through. */
    isle_wait(played_heard_type(company.b, WIRE_HELLO));
    if (company.c != NULL)
        isle_wait(played_heard_type(company.c, WIRE_HELLO));
    return company;
}

void company_end(struct company *company)
{
    isle_close(company->a);
    if (company->b != NULL)
        played_close(company->b);
    if (company->c != NULL)
        played_close(company->c);
    isle_run_free(company->run);
}

void company_say(struct played *played)
{
    played_say(played, A);
    played_settle(played, A, WIRE_DONE);
}
