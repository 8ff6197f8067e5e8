/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transport/dial_back.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <resolv.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/env.h"

static const char begin[] = "diloco dial back"; /* of a challenge; without its zero */
/* What is signed begins with this, so that it is a signature of nothing else. */
static const char label[] = "diloco dialled";
enum { BEGIN_BYTES = sizeof begin - 1, SIGNED_BYTES = sizeof label + DIAL_CHALLENGE_BYTES + IDENT_SIGNATURE_BYTES };

/* ---- challenge and answer ---- */

void dial_challenge(uint8_t challenge[DIAL_CHALLENGE_BYTES])
{
    memcpy(challenge, begin, BEGIN_BYTES);
    for (size_t at = BEGIN_BYTES; at < DIAL_CHALLENGE_BYTES; at += sizeof(uint64_t)) {
        uint64_t word = env_random_u64();
        memcpy(challenge + at, &word, sizeof word);
    }
}

bool dial_challenge_good(const uint8_t challenge[DIAL_CHALLENGE_BYTES])
{
    return memcmp(challenge, begin, BEGIN_BYTES) == 0;
}

/* Label with its zero, challenge, signature of the JOIN: which covers run, invitation, key and address. */
static void put_signed(const struct wire_join *join, const uint8_t *challenge, uint8_t out[SIGNED_BYTES])
{
    struct bytes_writer writer = bytes_writer_init(out, SIGNED_BYTES);
    bytes_put(&writer, label, sizeof label);
    bytes_put(&writer, challenge, DIAL_CHALLENGE_BYTES);
    bytes_put(&writer, join->signature, sizeof join->signature);
}

void dial_answer(const struct ident *ident, const struct wire_join *join, const uint8_t challenge[DIAL_CHALLENGE_BYTES],
                 uint8_t answer[DIAL_ANSWER_BYTES])
{
    uint8_t message[SIGNED_BYTES];
    put_signed(join, challenge, message);
    ident_sign(ident, message, sizeof message, answer);
}

bool dial_answered(const struct wire_join *join, const uint8_t challenge[DIAL_CHALLENGE_BYTES],
                   const uint8_t answer[DIAL_ANSWER_BYTES])
{
    uint8_t message[SIGNED_BYTES];
    put_signed(join, challenge, message);
    return ident_signed(join->key, message, sizeof message, answer);
}

/* ---- dialling ---- */

/* False: not before `end_ms`. */
static bool wait_for(int fd, short events, uint64_t end_ms)
{
    for (uint64_t now_ms; (now_ms = env_mono_ms()) < end_ms;) {
        struct pollfd item = {.fd = fd, .events = events};
        if (poll(&item, 1, (int)(end_ms - now_ms)) > 0)
            return true;
    }
    return false;
}

static enum wire_dial_outcome outcome_of(int error)
{
    switch (error) {
    case ECONNREFUSED: return WIRE_DIAL_REFUSED;
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT:
    case EACCES:
    case EPERM: return WIRE_DIAL_NO_ROUTE;
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM: return WIRE_DIAL_UNTESTED; /* that is ours */
    default: return WIRE_DIAL_NO_ANSWER;
    }
}

/* The connection is there. */
static enum wire_dial_outcome prove(int fd, const struct wire_join *join, uint64_t end_ms)
{
    uint8_t challenge[DIAL_CHALLENGE_BYTES], answer[DIAL_ANSWER_BYTES];
    size_t got = 0;
    dial_challenge(challenge);
    if (send(fd, challenge, sizeof challenge, MSG_NOSIGNAL) != (ssize_t)sizeof challenge)
        return WIRE_DIAL_SOMEBODY_ELSE;
    while (got < sizeof answer && wait_for(fd, POLLIN, end_ms)) {
        ssize_t more = recv(fd, answer + got, sizeof answer - got, 0);
        if (more == 0 || (more < 0 && errno != EAGAIN && errno != EINTR))
            break;
        got += more > 0 ? (size_t)more : 0;
    }
    return got == sizeof answer && dial_answered(join, challenge, answer) ? WIRE_DIAL_REACHED : WIRE_DIAL_SOMEBODY_ELSE;
}

static enum wire_dial_outcome dial_host(const struct addrinfo *host, const struct wire_join *join, uint64_t end_ms)
{
    int error = 0, fd = socket(host->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t bytes = sizeof error;
    if (fd < 0)
        return outcome_of(errno);
    if (connect(fd, host->ai_addr, host->ai_addrlen) != 0)
        error = errno;
    enum wire_dial_outcome outcome = WIRE_DIAL_NO_ANSWER;
    if (error == EINPROGRESS) {
        bool ended = wait_for(fd, POLLOUT, end_ms);
        error = !ended ? ETIMEDOUT : getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 ? error : errno;
    }
    outcome = error != 0 ? outcome_of(error) : prove(fd, join, end_ms);
    close(fd);
    return outcome;
}

/* Text up to the last colon, without the brackets of IPv6. */
static void split(const char *address, char host[ADDRESS_BYTES], const char **port)
{
    const char *colon = strrchr(address, ':');
    bool six = address[0] == '[';
    *port = colon + 1;
    snprintf(host, ADDRESS_BYTES, "%.*s", (int)(colon - address) - 2 * six, address + six);
}

/* The resolver's settings are a thread's own (resolver(3)): else one name may take as long as all name servers that do
 * not answer, several times over. */
static int look_up(const char *address, struct addrinfo **list)
{
    char host[ADDRESS_BYTES];
    const char *port;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    split(address, host, &port);
    if (res_init() == 0) {
        _res.retrans = DIAL_BACK_LOOKUP_S;
        _res.retry = 1;
    }
    return getaddrinfo(host, port, &hints, list);
}

/* Of several addresses of a name: reached, if one is; else what the first says. */
static enum wire_dial_outcome dial_all(const struct addrinfo *list, const struct wire_join *join)
{
    enum wire_dial_outcome outcome = WIRE_DIAL_NO_NAME;
    uint64_t end_ms = env_mono_ms() + DIAL_BACK_MS;
    uint32_t count = 0, tried = 0;
    for (const struct addrinfo *host = list; host != NULL && count < DIAL_BACK_HOSTS_MAX; host = host->ai_next)
        count++;
    for (const struct addrinfo *host = list; tried < count && outcome != WIRE_DIAL_REACHED; host = host->ai_next) {
        uint64_t now_ms = env_mono_ms(), left_ms = end_ms > now_ms ? end_ms - now_ms : 0;
        enum wire_dial_outcome here = dial_host(host, join, now_ms + left_ms / (count - tried));
        outcome = tried++ == 0 || here == WIRE_DIAL_REACHED ? here : outcome;
    }
    return outcome;
}

enum wire_dial_outcome dial_back(const struct wire_join *join, uint32_t *took_ms)
{
    uint64_t begin_ms = env_mono_ms();
    struct addrinfo *list = NULL;
    enum wire_dial_outcome outcome = WIRE_DIAL_NO_NAME;
    if (look_up(join->word.address, &list) == 0) {
        outcome = dial_all(list, join);
        freeaddrinfo(list);
    }
    uint64_t ms = env_mono_ms() - begin_ms;
    *took_ms = ms < WIRE_DIAL_TOOK_MS_MAX ? (uint32_t)ms : WIRE_DIAL_TOOK_MS_MAX;
    return outcome;
}

/* ---- for people ---- */

bool dial_in_vain(uint8_t outcome)
{
    return outcome != WIRE_DIAL_UNTESTED && outcome != WIRE_DIAL_REACHED;
}

const char *dial_outcome_text(uint8_t outcome)
{
    static const char *const texts[WIRE_DIAL_OUTCOMES] = {[WIRE_DIAL_UNTESTED] = "it was not tested",
                                                          [WIRE_DIAL_REACHED] = "it is reached",
                                                          [WIRE_DIAL_REFUSED] =
                                                              "nobody listens there (connection refused)",
                                                          [WIRE_DIAL_NO_ANSWER] = "no answer, as behind a firewall",
                                                          [WIRE_DIAL_NO_ROUTE] = "there is no way to it",
                                                          [WIRE_DIAL_SOMEBODY_ELSE] = "somebody else answers there",
                                                          [WIRE_DIAL_NO_NAME] = "the name does not resolve"};
    return outcome < WIRE_DIAL_OUTCOMES ? texts[outcome] : texts[WIRE_DIAL_UNTESTED];
}
