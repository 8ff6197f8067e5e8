/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/ctl_help.h"

static const char *const of_making[] = {"init", "join TOKEN", "start", "stop", "keygen FILE", "reset", NULL};
static const char *const of_looking[] = {"status", "watch", "logs", "peers", "fragments", NULL};
static const char *const of_steering[] = {"invite",      "pause", "resume",     "leave", "evict NAME",
                                          "revoke NAME", "save",  "export DIR", NULL};
static const char *const of_planning[] = {"plan", NULL};
static const struct commands_group groups[] = {{"make an island, and run it", of_making},
                                               {"look at it", of_looking},
                                               {"steer it, and the run", of_steering},
                                               {"plan", of_planning}};

static const struct commands_example examples[] = {
    {"init", "dilococtl init --home ~/paris --name paris --data book.txt\n"
             "sudo dilococtl init --name paris --data '/srv/text/*.txt' --device cuda\n"},
    {"start", "dilococtl start --home ~/paris\n"},
    {"stop", "dilococtl stop --home ~/paris\n"},
    {"logs", "dilococtl logs --home ~/paris -f\n"
             "dilococtl logs --home ~/paris --trainer\n"},
    {"keygen", "dilococtl keygen /etc/diloco/island.key --name paris\n"},
    {"invite", "dilococtl invite --home ~/paris --note 'for oslo' --expires 2h\n"
               "dilococtl invite --home ~/paris --list\n"},
    {"join", "dilococtl join TOKEN --home ~/oslo --name oslo --data book.txt\n"
             "dilococtl join --token-file token --home ~/witness --witness\n"},
    {"pause", "dilococtl pause --home ~/oslo\n"
              "dilococtl pause --home ~/oslo --now\n"},
    {"resume", "dilococtl resume --home ~/oslo\n"},
    {"leave", "dilococtl leave --home ~/oslo --wait 120\n"},
    {"evict", "dilococtl evict oslo --home ~/paris\n"},
    {"revoke", "dilococtl revoke oslo --home ~/paris\n"},
    {"reset", "dilococtl reset --home ~/oslo\n"},
    {"status", "dilococtl status --home ~/paris\n"
               "dilococtl status --check || echo 'the island is degraded'\n"},
    {"peers", "dilococtl peers --home ~/paris\n"
              "dilococtl peers --names\n"},
    {"fragments", "dilococtl fragments --home ~/paris\n"},
    {"watch", "dilococtl watch --home ~/paris\n"
              "dilococtl watch --json --interval 5000 >>watched.jsonl\n"},
    {"plan", "dilococtl plan --params 1e9 --step-time 1 --bandwidth 1Gbit --rtt 50 --plot plan.svg\n"},
    {"save", "dilococtl save --home ~/paris\n"},
    {"export", "dilococtl export --home ~/paris --format hf model\n"},
    {"help", "dilococtl help invite\n"},
    {"completion", "source <(dilococtl completion bash)\n"
                   "dilococtl completion fish >~/.config/fish/completions/dilococtl.fish\n"},
};

struct commands ctl_help_of(const struct commands_row *rows, size_t rows_count)
{
    return (struct commands){.program = "dilococtl",
                             .about = "Makes an island, looks at its daemon and steers it.",
                             .rows = rows,
                             .rows_count = rows_count,
                             .tells_names = "peers --names",
                             .told_by = " home socket config ",
                             .groups = groups,
                             .groups_count = sizeof groups / sizeof groups[0],
                             .examples = examples,
                             .examples_count = sizeof examples / sizeof examples[0]};
}
