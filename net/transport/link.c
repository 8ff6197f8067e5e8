/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transport/link.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/env.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/quota.h"
#include "net/transport/address.h"
#include "net/transport/dialled.h"
#include "net/transport/guests.h"
#include "net/transport/socket.h"
#include "net/transport/wire_join.h"
#include "net/transport/zap.h"

/* ---- news: kept in order until they are asked for; a flood of strangers costs no more than this ---- */

enum { NEWS_MAX = 64 };

struct news {
    struct link_event events[NEWS_MAX]; /* ring */
    size_t head, count;
};

static bool news_full(const struct news *news)
{
    return news->count == NEWS_MAX;
}

/* Dropped where there is no room. */
static void news_put(struct news *news, const struct link_event *event)
{
    if (!news_full(news))
        news->events[(news->head + news->count++) % NEWS_MAX] = *event;
}

static void news_tell(struct news *news, enum link_event_type type, uint32_t peer, const char *text)
{
    struct link_event event = {.type = type, .peer = peer};
    snprintf(event.text, sizeof event.text, "%s", text);
    news_put(news, &event);
}

/* False: there is none. */
static bool news_take(struct news *news, struct link_event *event)
{
    if (news->count == 0)
        return false;
    *event = news->events[news->head];
    news->head = (news->head + 1) % NEWS_MAX;
    news->count--;
    return true;
}

/* News that wait of this peer are of nobody now. */
static void news_drop(struct news *news, uint32_t peer)
{
    size_t count = news->count;
    news->count = 0;
    for (size_t i = 0; i < count; i++) {
        const struct link_event *event = &news->events[(news->head + i) % NEWS_MAX];
        if (event->peer != peer)
            news->events[(news->head + news->count++) % NEWS_MAX] = *event;
    }
}

/* ---- the link ---- */

/* Connections to a peer: control and bulk. */
enum { LINK_CONNECTIONS = 2 };

/* Where the ROUTER finds a peer that dialled us. */
struct link_route {
    uint8_t id[SOCKET_ROUTE_BYTES];
    size_t bytes; /* 0: none */
    bool by_next; /* it came in by the key that it would have next */
    int fd;       /* ZeroMQ's; may be closed any time */
};

struct link_peer {
    bool used;
    uint8_t key[IDENT_KEY_BYTES], next[IDENT_KEY_BYTES];
    bool has_next, dials_next; /* dials_next: it is expected to have that key by now */
    bool by_before;            /* it is dialled with the key that we had before */
    char address[ADDRESS_BYTES];
    /* by connection: control, bulk */
    struct dialled dialled[LINK_CONNECTIONS];
    struct link_route listened[LINK_CONNECTIONS];
    uint64_t heard_ms;      /* when a message of it, or a connection to it, came last (env_mono_ms()) */
    uint64_t room;          /* bytes that the bulk connection's send buffer was last asked to hold; 0: it is new */
    uint64_t shut_until_ms; /* env_mono_ms(); 0: it is not shut out */
    uint64_t unusable, out; /* messages: dropped here since that was asked; handed over */
};

enum { LINK_CONGESTION_BYTES = 16 }; /* as the kernel has it */

struct link {
    struct ident ident, before;
    bool has_before;
    char endpoint[300];  /* that was asked for, with the port that it got; "": outbound only */
    bool listens, stale; /* it is bound; the router has the key before */
    uint64_t deaf_ms;    /* since when it is to be bound again and is not (env_mono_ms()); 0: it is */
    char deaf[512];      /* why, once that has lasted; "": it has not */
    void *context, *router, *router_monitor;
    struct backlog *backlog;
    struct zap *zap;
    struct guests guests;
    struct traffic *traffic;
    struct link_peer *peers; /* by slot */
    uint32_t places;         /* room in `peers` */
    uint32_t used;           /* of these */
    uint64_t run_tag, rate_limit;
    char congestion[LINK_CONGESTION_BYTES]; /* "": as the system has it */
    struct caps caps;
    unsigned port;
    uint32_t recv_turn, recv_burst, monitor_turn;
    uint32_t mute_ms;
    uint64_t ticked_ms; /* link_tick(), last */
    uint64_t handed;    /* bytes */
    zmq_msg_t payload;
    struct news news;
};

/* DROPPED: a connection that brings nothing but nonsense does not hold up the others; BURST: nor one that never stops;
 * ZAP: nor those who knock. */
enum { DROPPED_PER_TURN = 64, BURST = 16, ZAP_PER_TURN = 64 };
/* On the line comes a header with each segment: Ethernet, IPv4, TCP with time stamps; and a bare acknowledgement goes
 * back for every second one that comes in. */
enum { SEGMENT_BYTES = 1448, SEGMENT_HEADER_BYTES = 66, SEGMENTS_ACKED = 2 };
/* Of a part on either connection: the messages of epochs are larger than all others. */
enum { BULK_PART_BYTES_MAX = WIRE_CHUNK_HEADER_BYTES + WIRE_CHUNK_BYTES_MAX, PART_BYTES_MAX = WIRE_PAXOS_BYTES_MAX };
/* PARTS of a message: header and payload. PLACES are made so many at a time.
 * KNOCKS: connections beside those of members. */
enum { MESSAGE_PARTS = 2, PLACES = 16, KNOCKS_MAX = 256 };
enum { LISTEN_QUEUE = 1024, SOCKETS_MAX = 16384 };
/* MUTE: heartbeats come every second. PAUSE: a tick comes several times a second, unless we were stopped. DEAF: our own
 * socket before has closed by then, and somebody else has the port. */
enum { MUTE_MS = 15000, PAUSE_MS = 2000, DEAF_MS = 3000 };

/* ---- set-up ---- */

static const char endpoint_scheme[] = "tcp://";

/* Once more it is the same port, where the host leads by then: a network interface may have another address. */
static void keep_port(struct link *link)
{
    char *at = strrchr(link->endpoint, ':');
    snprintf(at, sizeof link->endpoint - (size_t)(at - link->endpoint), ":%u", link->port);
}

static enum err bind_router(struct link *link)
{
    char bound[300];
    size_t bytes = sizeof bound;
    TRY(socket_key(link->router, ZMQ_CURVE_SECRETKEY, link->ident.curve_secret));
    if (link->endpoint[0] == '\0' || link->listens)
        return ERR_OK;
    if (zmq_bind(link->router, link->endpoint) != 0) {
        const char *listen = link->endpoint + strlen(endpoint_scheme);
        if (zmq_errno() == EADDRINUSE)
            return err_set(ERR_CONF,
                           "listen = %s: the port is in use; stop the other program (ss -ltnp shows it) or choose "
                           "another port",
                           listen);
        return err_set(ERR_CONF, "listen = %s: cannot listen there: %s; expected host:port, as in 0.0.0.0:7600", listen,
                       zmq_strerror(zmq_errno()));
    }
    link->listens = true;
    if (zmq_getsockopt(link->router, ZMQ_LAST_ENDPOINT, bound, &bytes) == 0 && strrchr(bound, ':') != NULL) {
        unsigned port = 0;
        sscanf(strrchr(bound, ':') + 1, "%u", &port);
        link->port = port;
        keep_port(link);
    }
    return ERR_OK;
}

static enum err open_router(struct link *link)
{
    link->router = link->router_monitor = NULL;
    TRY(socket_open(link->context, ZMQ_ROUTER, PART_BYTES_MAX, &link->router));
    TRY(socket_int(link->router, ZMQ_CURVE_SERVER, 1));
    TRY(socket_int(link->router, ZMQ_ROUTER_MANDATORY, 1));
    TRY(socket_int(link->router, ZMQ_ROUTER_HANDOVER, 1));
    TRY(socket_int(link->router, ZMQ_BACKLOG, LISTEN_QUEUE));
    TRY(zap_guard(link->zap, link->router));
    return socket_watch(link->context, link->router, ZMQ_EVENT_ACCEPTED, &link->router_monitor);
}

static enum err open_all(struct link *link, const struct link_conf *conf)
{
    link->context = zmq_ctx_new();
    if (link->context == NULL)
        return socket_failed("cannot start ZeroMQ");
    zmq_ctx_set(link->context, ZMQ_IO_THREADS, conf->io_threads);
    zmq_ctx_set(link->context, ZMQ_MAX_SOCKETS, SOCKETS_MAX);
    if (!zmq_has("curve"))
        return err_set(ERR_STATE, "this ZeroMQ was built without CURVE; install one with libsodium");
    TRY(zap_new(link->context, &link->zap));
    TRY(open_router(link));
    if (conf->listen != NULL && conf->listen[0] != '\0')
        snprintf(link->endpoint, sizeof link->endpoint, "%s%s", endpoint_scheme, conf->listen);
    TRY(bind_router(link));
    for (uint32_t i = 0; i < conf->members_count; i++)
        if (i != conf->self && conf->members[i].name != NULL)
            TRY(link_set(link, i, &conf->members[i]));
    return ERR_OK;
}

/* Without bbr a line carries less, and that is told; anything else was meant as it was written. */
static enum err choose_congestion(struct link *link, const char *name)
{
    bool bbr = strcmp(name, "bbr") == 0;
    if (!bbr)
        link->caps.bbr_error = 0; /* and not missed */
    if (name[0] == '\0' || (bbr && link->caps.bbr_error != 0))
        return ERR_OK;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), error = ENOENT;
    if (strlen(name) < sizeof link->congestion)
        error = socket_set_congestion(fd, name);
    if (fd >= 0)
        close(fd);
    if (error != 0)
        return err_set(ERR_CONF,
                       "[net] congestion = %s: %s; sysctl net.ipv4.tcp_allowed_congestion_control says which there are "
                       "for all, and empty is the system's own",
                       name, error == ENOENT ? "the kernel has no such congestion control" : strerror(error));
    snprintf(link->congestion, sizeof link->congestion, "%s", name);
    return ERR_OK;
}

static void take_idents(struct link *link, const struct ident *ident, const struct ident *before)
{
    link->ident = *ident;
    link->has_before = before != NULL;
    link->before = before != NULL ? *before : *ident;
}

enum err link_new(const struct link_conf *conf, struct link **out)
{
    enum err err;
    struct link *link = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *link, "links", &link));
    take_idents(link, conf->ident, conf->before);
    link->run_tag = conf->run_tag;
    link->rate_limit = conf->rate_limit;
    link->mute_ms = conf->mute_ms > 0 ? conf->mute_ms : MUTE_MS;
    caps_read("/proc/sys/net", &link->caps);
    zmq_msg_init(&link->payload);
    TRY_OUT(choose_congestion(link, conf->congestion != NULL ? conf->congestion : ""));
    TRY_OUT(traffic_new(0, &link->traffic));
    TRY_OUT(backlog_new(KNOCKS_MAX, &link->backlog));
    TRY_OUT(open_all(link, conf));
out:
    if (err != ERR_OK)
        link_free(link);
    else
        *out = link;
    return err;
}

void link_free(struct link *link)
{
    if (link == NULL)
        return;
    for (uint32_t i = 0; i < link->places; i++)
        for (int bulk = 0; bulk < LINK_CONNECTIONS; bulk++)
            dialled_close(&link->peers[i].dialled[bulk]);
    socket_close(&link->router, &link->router_monitor);
    zap_free(link->zap);
    zmq_msg_close(&link->payload);
    if (link->context != NULL)
        zmq_ctx_term(link->context);
    traffic_free(link->traffic);
    backlog_free(link->backlog);
    guests_free(&link->guests);
    mem_free(link->peers);
    mem_free(link);
}

static size_t put_item(zmq_pollitem_t *items, size_t items_max, size_t count, void *socket)
{
    if (count < items_max)
        items[count] = (zmq_pollitem_t){.socket = socket, .events = ZMQ_POLLIN};
    return count + 1;
}

size_t link_poll_items(const struct link *link, zmq_pollitem_t *items, size_t items_max)
{
    size_t count = put_item(items, items_max, 0, zap_socket(link->zap));
    count = put_item(items, items_max, count, link->router);
    count = put_item(items, items_max, count, link->router_monitor);
    for (uint32_t i = 0; i < link->places; i++) {
        for (int bulk = 0; bulk < LINK_CONNECTIONS; bulk++) {
            const struct dialled *d = &link->peers[i].dialled[bulk];
            if (d->socket == NULL)
                continue;
            count = put_item(items, items_max, count, d->socket);
            count = put_item(items, items_max, count, d->monitor);
        }
    }
    return count;
}

/* ---- members come and go ---- */

/* One of the two connections to a peer whose address is known. */
static enum err dial(struct link *link, uint32_t slot, int bulk)
{
    struct link_peer *peer = &link->peers[slot];
    bool by_next = peer->has_next && peer->dials_next;
    const struct ident *ident = peer->by_before && link->has_before ? &link->before : &link->ident;
    TRY(dialled_open(&peer->dialled[bulk], link->context, ident, by_next ? peer->next : peer->key, peer->address,
                     bulk == 1, bulk == 1 ? BULK_PART_BYTES_MAX : PART_BYTES_MAX));
    peer->dialled[bulk].by_next = by_next;
    return ERR_OK;
}

/* Room for this slot. */
static enum err make_places(struct link *link, uint32_t slot)
{
    uint32_t places = (slot / PLACES + 1) * PLACES;
    if (slot < link->places)
        return ERR_OK;
    if (slot >= LINK_SLOTS_MAX)
        return err_set(ERR_ARG, "member slot %" PRIu32 "; at most %d are possible", slot, LINK_SLOTS_MAX);
    TRY(traffic_grow(link->traffic, places));
    TRY(mem_grow(&link->peers, link->places, places, sizeof *link->peers, "links"));
    for (uint32_t i = link->places; i < places; i++)
        for (int bulk = 0; bulk < LINK_CONNECTIONS; bulk++)
            link->peers[i].dialled[bulk].fd = link->peers[i].listened[bulk].fd = -1;
    link->places = places;
    return ERR_OK;
}

/* Ends what it dialled, and what we dialled. Of a connection that is not known the first message ends it. */
static void hang_up(struct link *link, uint32_t slot, bool listened)
{
    struct link_peer *peer = &link->peers[slot];
    int fds[TRAFFIC_FDS_MAX];
    size_t fds_count = listened ? traffic_fds(link->traffic, slot, fds) : 0;
    for (int bulk = 0; bulk < LINK_CONNECTIONS; bulk++) {
        dialled_close(&peer->dialled[bulk]);
        if (listened)
            peer->listened[bulk] = (struct link_route){.fd = -1};
    }
    for (size_t i = 0; i < fds_count; i++)
        backlog_end(link->backlog, fds[i]);
}

static void remove_member(struct link *link, uint32_t slot)
{
    if (slot >= link->places || !link->peers[slot].used)
        return;
    zap_dismiss(link->zap, slot);
    hang_up(link, slot, true);
    news_drop(&link->news, slot);
    traffic_forget(link->traffic, slot);
    link->peers[slot].used = false;
    link->peers[slot].shut_until_ms = link->peers[slot].unusable = link->peers[slot].out = 0;
    link->used--;
}

/* What stands by the key that it would have had next: that of no member any more. Another that came in by it ends with
 * its first message. */
static void end_next(struct link *link, uint32_t slot)
{
    struct link_peer *peer = &link->peers[slot];
    for (int bulk = 0; bulk < LINK_CONNECTIONS; bulk++) {
        if (peer->dialled[bulk].by_next)
            dialled_close(&peer->dialled[bulk]);
        if (!peer->listened[bulk].by_next)
            continue;
        backlog_end(link->backlog, peer->listened[bulk].fd);
        peer->listened[bulk] = (struct link_route){.fd = -1};
    }
}

/* The key that a member would have beside the one it has. */
static enum err set_next(struct link *link, uint32_t slot, const uint8_t *next)
{
    static const uint8_t none[IDENT_KEY_BYTES];
    struct link_peer *peer = &link->peers[slot];
    uint8_t curve_key[IDENT_KEY_BYTES];
    bool has = memcmp(next, none, sizeof none) != 0;
    if (has)
        TRY(ident_curve(next, curve_key));
    TRY(zap_admit_next(link->zap, slot, has ? curve_key : NULL));
    if (memcmp(peer->next, next, sizeof peer->next) != 0)
        end_next(link, slot);
    memcpy(peer->next, next, sizeof peer->next);
    peer->has_next = has;
    peer->dials_next = false;
    return ERR_OK;
}

/* Those of its connections that are to be and are not. */
static enum err dial_missing(struct link *link, uint32_t slot, const char *name)
{
    struct link_peer *peer = &link->peers[slot];
    bool dials = peer->address[0] != '\0' && peer->shut_until_ms == 0;
    for (int bulk = 0; bulk < LINK_CONNECTIONS && dials; bulk++) {
        enum err err = dialled_is(&peer->dialled[bulk]) ? ERR_OK : dial(link, slot, bulk);
        if (err != ERR_OK)
            return err_prefix(err, "[peer %s] address", name);
    }
    return ERR_OK;
}

enum err link_set(struct link *link, uint32_t slot, const struct link_member *member)
{
    uint8_t curve_key[IDENT_KEY_BYTES];
    if (member == NULL) {
        remove_member(link, slot);
        return ERR_OK;
    }
    const char *address = member->address != NULL ? member->address : "";
    TRY(make_places(link, slot));
    struct link_peer *peer = &link->peers[slot];
    bool same_key = peer->used && memcmp(peer->key, member->key, sizeof peer->key) == 0;
    bool same_next = peer->used && memcmp(peer->next, member->next, sizeof peer->next) == 0;
    bool same_address = peer->used && strcmp(peer->address, address) == 0;
    bool dialled = dialled_is(&peer->dialled[0]) || address[0] == '\0' || peer->shut_until_ms != 0;
    if (same_key && same_next && same_address && dialled)
        return ERR_OK;
    TRY(ident_curve(member->key, curve_key));
    TRY(zap_admit(link->zap, slot, curve_key));
    TRY(set_next(link, slot, member->next));
    if (same_key && same_address && dialled) /* who has the key goes on as it was */
        return dial_missing(link, slot, member->name);
    hang_up(link, slot, !same_key);
    peer->by_before = false;
    link->used += !peer->used;
    peer->used = true;
    memcpy(peer->key, member->key, sizeof peer->key);
    snprintf(peer->address, sizeof peer->address, "%s", address);
    /* Each side may dial; twice as many, for those that are gone without our having seen it. */
    backlog_allow(link->backlog, KNOCKS_MAX + (size_t)4 * LINK_CONNECTIONS * link->used);
    if (!same_key)
        peer->shut_until_ms = 0;
    return dial_missing(link, slot, member->name);
}

/* ---- another key of our own ---- */

static void dial_both(struct link *link, uint32_t slot)
{
    for (int bulk = 0; bulk < LINK_CONNECTIONS && link->peers[slot].address[0] != '\0'; bulk++)
        if (dial(link, slot, bulk) != ERR_OK)
            log_error("cannot dial a peer again: %s", err_text());
}

/* What lasts is worth a word, once, and one when it is over. */
static void note_listening(struct link *link, enum err err)
{
    uint64_t now_ms = env_mono_ms();
    if (err == ERR_OK) {
        if (link->deaf[0] != '\0')
            log_info("listening again, with the new key, at %s", link->endpoint);
        link->deaf_ms = 0;
        link->deaf[0] = '\0';
        return;
    }
    link->deaf_ms = link->deaf_ms != 0 ? link->deaf_ms : now_ms;
    if (now_ms < link->deaf_ms + DEAF_MS)
        return;
    if (link->deaf[0] == '\0')
        log_warn("nobody can dial this island since its key changed: %s; it is tried again", err_text());
    snprintf(link->deaf, sizeof link->deaf, "%s", err_text());
}

/* With the new key. The socket before closes behind our back: until it has, the port is taken. */
static void listen_again(struct link *link)
{
    void *router = link->router, *monitor = link->router_monitor;
    enum err err = ERR_OK;
    if (link->stale)
        err = open_router(link);
    if (link->stale && err == ERR_OK) {
        socket_close(&router, &monitor);
        link->stale = link->listens = false;
    } else if (link->stale) {
        socket_close(&link->router, &link->router_monitor);
        link->router = router;
        link->router_monitor = monitor;
    }
    if (err == ERR_OK && !link->listens)
        err = bind_router(link);
    note_listening(link, err);
}

void link_rekey(struct link *link, const struct ident *ident, const struct ident *before)
{
    bool same = memcmp(link->ident.key, ident->key, sizeof ident->key) == 0;
    take_idents(link, ident, before);
    if (same)
        return;
    link->stale = true;
    for (uint32_t i = 0; i < link->places; i++) {
        if (!link->peers[i].used)
            continue;
        hang_up(link, i, true);
        news_drop(&link->news, i);
        link->peers[i].by_before = false;
    }
    listen_again(link);
    for (uint32_t i = 0; i < link->places; i++)
        if (link->peers[i].used && link->peers[i].shut_until_ms == 0)
            dial_both(link, i);
}

const uint8_t *link_key(const struct link *link)
{
    return link->ident.key;
}

/* ---- members that are shut out ---- */

void link_shut(struct link *link, uint32_t slot, uint64_t for_ms)
{
    if (slot >= link->places || !link->peers[slot].used)
        return;
    link->peers[slot].shut_until_ms = env_mono_ms() + for_ms;
    link->peers[slot].unusable = 0;
    zap_shut(link->zap, slot, true);
    hang_up(link, slot, true);
    news_drop(&link->news, slot);
}

static void let_in_again(struct link *link, uint64_t now_ms)
{
    for (uint32_t i = 0; i < link->places; i++) {
        struct link_peer *peer = &link->peers[i];
        if (peer->shut_until_ms == 0 || now_ms < peer->shut_until_ms)
            continue;
        peer->shut_until_ms = 0;
        peer->heard_ms = now_ms;
        zap_shut(link->zap, i, false);
        dial_both(link, i);
    }
}

/* ---- guests ---- */

enum err link_admit(struct link *link, const uint8_t key[IDENT_KEY_BYTES], uint64_t until_ms)
{
    return guests_admit(&link->guests, link->zap, key, until_ms);
}

static void dismiss_guest(struct link *link, uint32_t guest)
{
    int fd = guests_dismiss(&link->guests, link->zap, guest);
    if (fd >= 0)
        backlog_end(link->backlog, fd);
}

void link_unadmit(struct link *link, const uint8_t key[IDENT_KEY_BYTES])
{
    dismiss_guest(link, zap_guest(link->zap, key));
}

/* Those whose time is over are strangers. */
static void dismiss_late(struct link *link)
{
    if (link->guests.count == 0)
        return;
    uint64_t now_ms = env_mono_ms();
    for (uint32_t guest; (guest = guests_over(&link->guests, now_ms)) != ZAP_NOBODY;)
        dismiss_guest(link, guest);
}

/* ---- events ---- */

/* Lets those in who may connect, and tells of the others. */
static void serve_zap(struct link *link)
{
    char text[WIRE_REASON_BYTES];
    enum zap_outcome outcome;
    dismiss_late(link);
    for (int i = 0; i < ZAP_PER_TURN && (outcome = zap_serve(link->zap, text, sizeof text)) != ZAP_NOTHING; i++)
        if (outcome == ZAP_STRANGER)
            news_tell(&link->news, LINK_STRANGER, UINT32_MAX, text);
}

/* A new bulk connection. */
static void tune_bulk(struct link *link, uint32_t peer, int fd)
{
    link->peers[peer].room = 0;
    if (fd < 0)
        return;
    if (link->congestion[0] != '\0')
        (void)socket_set_congestion(fd, link->congestion); /* whether it can be was found out before */
    if (link->rate_limit > 0)
        socket_pace(fd, link->rate_limit);
}

/* A connection of a member, which has few: of more the oldest ends. */
static void note_connection(struct link *link, uint32_t peer, int fd)
{
    int gone = traffic_note(link->traffic, peer, fd);
    if (gone >= 0)
        backlog_end(link->backlog, gone);
}

static void read_monitor(struct link *link, uint32_t peer, bool bulk)
{
    struct dialled *d = &link->peers[peer].dialled[bulk];
    enum dialled_news news;
    while (!news_full(&link->news) && (news = dialled_next(d)) != DIALLED_NOTHING) {
        struct link_event event = {.peer = peer, .bulk = bulk};
        if ((news == DIALLED_FAILED || news == DIALLED_NOT_ADMITTED) && d->again_ms == 0)
            dialled_pause(d, link->peers[peer].has_next ? 2 : 1);
        switch (news) {
        case DIALLED_CONNECTED:
            backlog_open(link->backlog, d->fd, true);
            note_connection(link, peer, d->fd);
            if (bulk)
                tune_bulk(link, peer, d->fd);
            continue;
        case DIALLED_UP:
            event.type = LINK_CONNECTED;
            link->peers[peer].heard_ms = env_mono_ms();
            if (bulk)
                (void)!link_send(link, peer, WIRE_BULK_HELLO, NULL, 0, NULL, 0);
            break;
        case DIALLED_LOST: event.type = LINK_DISCONNECTED; break;
        case DIALLED_NOT_ADMITTED: event.type = LINK_NOT_ADMITTED; break;
        case DIALLED_NO_ANSWER: event.type = LINK_NO_ANSWER; break;
        case DIALLED_FAILED:
        case DIALLED_NOTHING: continue;
        }
        news_put(&link->news, &event);
    }
}

static void read_router_monitor(struct link *link)
{
    uint16_t event;
    uint32_t value;
    while (socket_event(link->router_monitor, &event, &value))
        if (event == ZMQ_EVENT_ACCEPTED)
            backlog_open(link->backlog, (int)value, false);
}

/* Every connection in turn, as far as there is room for what they tell; the rest waits with them. */
static void read_monitors(struct link *link)
{
    for (uint32_t k = 0; k < link->places && !news_full(&link->news); k++) {
        uint32_t slot = link->monitor_turn++ % link->places;
        read_monitor(link, slot, false);
        read_monitor(link, slot, true);
    }
}

bool link_event(struct link *link, struct link_event *event)
{
    serve_zap(link);
    read_router_monitor(link);
    if (link->news.count == 0)
        read_monitors(link);
    return news_take(&link->news, event);
}

/* ---- what goes onto the line ---- */

static uint64_t sealed_bytes(size_t payload_bytes)
{
    return WIRE_HEADER_BYTES + payload_bytes + (uint64_t)MESSAGE_PARTS * SOCKET_SEALED_BYTES;
}

static void count_sent(struct link *link, size_t payload_bytes)
{
    uint64_t bytes = sealed_bytes(payload_bytes);
    link->handed += bytes + (bytes / SEGMENT_BYTES + 1) * SEGMENT_HEADER_BYTES;
}

static void count_received(struct link *link, size_t payload_bytes)
{
    link->handed += sealed_bytes(payload_bytes) * SEGMENT_HEADER_BYTES / (SEGMENTS_ACKED * SEGMENT_BYTES);
}

/* ---- receiving ---- */

/* A message of no use. */
static bool pass_over(struct link *link, uint32_t peer, enum link_event_type type, const char *text)
{
    if (peer < link->places)
        link->peers[peer].unusable++;
    news_tell(&link->news, type, peer, text);
    return false;
}

/* Judges a message by the ladder: version, run, type. The length was limited by the socket, and who unpacks it knows
 * what its type may have. */
static bool acceptable(struct link *link, uint32_t peer, const struct wire_header *header, bool bulk)
{
    if (header->version != WIRE_VERSION) {
        char text[96];
        snprintf(text, sizeof text, "it speaks protocol version %" PRIu32 ", we speak %d; install the same release",
                 header->version, WIRE_VERSION);
        return pass_over(link, peer, LINK_MISMATCH, text);
    }
    if (header->run_tag != link->run_tag)
        return pass_over(link, peer, LINK_MISMATCH,
                         "it has another run spec, or is in another run: one that was founded another time");
    bool bulk_type = header->type == WIRE_CHUNK || header->type == WIRE_BULK_HELLO;
    bool known = (header->type >= WIRE_HELLO && header->type <= WIRE_BULK_HELLO) || wire_is_epoch(header->type) ||
                 wire_is_dial(header->type);
    if (!known || bulk_type != bulk)
        return pass_over(link, peer, LINK_MALFORMED, "a message of a type that has no place on that connection");
    return true;
}

/* Reads the parts after a possible routing id: header, payload, nothing more. False: dropped. */
static bool read_parts(struct link *link, void *socket, zmq_msg_t *part, uint32_t peer, struct link_message *message)
{
    uint8_t header[WIRE_HEADER_BYTES];
    size_t header_bytes = zmq_msg_size(part);
    bool good = header_bytes == sizeof header && zmq_msg_more(part);
    if (good)
        memcpy(header, zmq_msg_data(part), sizeof header);
    bool more = zmq_msg_more(part) != 0;
    int parts = 1;
    while (more) {
        zmq_msg_t *to = parts == 1 ? &link->payload : part;
        if (zmq_msg_recv(to, socket, ZMQ_DONTWAIT) < 0)
            return false;
        more = zmq_msg_more(to) != 0;
        parts++;
    }
    if (!good || parts != MESSAGE_PARTS || wire_header_get(header, sizeof header, &message->header) != ERR_OK)
        return pass_over(link, peer, LINK_MALFORMED, "bytes that are no diloco message");
    message->peer = peer;
    message->payload = zmq_msg_data(&link->payload);
    message->bytes = zmq_msg_size(&link->payload);
    count_received(link, message->bytes);
    return true;
}

static enum err recv_dialled(struct link *link, uint32_t peer, bool bulk, struct link_message *message)
{
    struct dialled *d = &link->peers[peer].dialled[bulk];
    zmq_msg_t part;
    enum err err = ERR_AGAIN;
    zmq_msg_init(&part);
    for (int i = 0; i < DROPPED_PER_TURN && err == ERR_AGAIN && d->socket != NULL; i++) {
        if (zmq_msg_recv(&part, d->socket, ZMQ_DONTWAIT) < 0)
            break;
        int fd = zmq_msg_get(&part, ZMQ_SRCFD);
        note_connection(link, peer, fd);
        backlog_seen(link->backlog, fd);
        link->peers[peer].heard_ms = env_mono_ms();
        if (read_parts(link, d->socket, &part, peer, message) && acceptable(link, peer, &message->header, bulk))
            err = ERR_OK;
    }
    zmq_msg_close(&part);
    return err;
}

static void put_header(const struct link *link, enum wire_type type, uint8_t header[WIRE_HEADER_BYTES])
{
    struct wire_header fields = {.version = WIRE_VERSION, .type = type, .run_tag = link->run_tag};
    wire_header_put(&fields, header);
}

/* A newcomer of another release reads our version in the header, whatever else it can read. */
static void answer_version(struct link *link, const struct link_route *route, uint32_t version)
{
    char text[WIRE_REASON_BYTES];
    uint8_t header[WIRE_HEADER_BYTES], payload[WIRE_JOIN_BYTES_MAX];
    snprintf(text, sizeof text,
             "the inviter speaks protocol version %d, the newcomer %" PRIu32 "; install the same release", WIRE_VERSION,
             version);
    size_t bytes = wire_refusal_pack(text, false, payload);
    put_header(link, WIRE_REFUSAL, header);
    struct socket_part parts[] = {{route->id, route->bytes}, {header, sizeof header}};
    /* One that does not go is asked for again. */
    (void)!socket_send(link->router, parts, 2, &(struct socket_part){payload, bytes}, &(struct socket_part){NULL, 0});
    snprintf(text, sizeof text, "it speaks protocol version %" PRIu32 ", we speak %d", version, WIRE_VERSION);
    news_tell(&link->news, LINK_MISMATCH, UINT32_MAX, text);
}

/* A guest says one thing. Anything else ends its connection. */
static void guest_in(struct link *link, uint32_t number, const struct link_route *route,
                     const struct link_message *message)
{
    const struct wire_header *header = &message->header;
    bool good = route->bytes > 0 && header->version == WIRE_VERSION && header->run_tag == link->run_tag &&
                (header->type == WIRE_JOIN || header->type == WIRE_DIAL_REQUEST) &&
                message->bytes <= WIRE_JOIN_BYTES_MAX;
    int end = route->fd;
    if (route->bytes > 0 && header->version != WIRE_VERSION) {
        answer_version(link, route, header->version);
        return;
    }
    if (good)
        end = guests_said(&link->guests, number, route->id, route->bytes, route->fd, (enum wire_type)header->type,
                          message->payload, message->bytes);
    else
        news_tell(&link->news, LINK_MALFORMED, UINT32_MAX,
                  "a guest said something else than who it is; its connection was closed");
    if (end >= 0)
        backlog_end(link->backlog, end);
}

/* Whose it is, with the route to answer; the first part of the message after it is in `part`. */
static struct zap_who read_route(struct link *link, zmq_msg_t *part, struct link_route *route)
{
    struct zap_who who = {.member = ZAP_NOBODY, .guest = ZAP_NOBODY};
    *route = (struct link_route){.bytes = zmq_msg_size(part)};
    if (route->bytes > sizeof route->id)
        route->bytes = 0;
    memcpy(route->id, zmq_msg_data(part), route->bytes);
    if (zmq_msg_more(part) && zmq_msg_recv(part, link->router, ZMQ_DONTWAIT) >= 0)
        who = zap_who(link->zap, zmq_msg_gets(part, "User-Id"));
    route->by_next = who.by_next;
    route->fd = zmq_msg_get(part, ZMQ_SRCFD);
    return who;
}

static enum err recv_listened(struct link *link, struct link_message *message)
{
    zmq_msg_t part;
    enum err err = ERR_AGAIN;
    zmq_msg_init(&part);
    for (int i = 0; i < DROPPED_PER_TURN && err == ERR_AGAIN; i++) {
        struct link_route route;
        if (zmq_msg_recv(&part, link->router, ZMQ_DONTWAIT) < 0)
            break;
        struct zap_who who = read_route(link, &part, &route);
        uint32_t peer = who.member;
        bool bulk = route.bytes > 0 && route.id[0] == 'b';
        bool known = peer != ZAP_NOBODY && route.bytes > 0;
        backlog_seen(link->backlog, route.fd);
        if (known)
            note_connection(link, peer, route.fd);
        if (known && bulk && route.fd != link->peers[peer].listened[bulk].fd)
            tune_bulk(link, peer, route.fd);
        bool whole = read_parts(link, link->router, &part, peer, message);
        if (whole && who.guest != ZAP_NOBODY)
            guest_in(link, who.guest, &route, message);
        else if (!known) /* of a key that was let in once, and is not any more; or of a guest who talks nonsense */
            backlog_end(link->backlog, route.fd);
        if (!whole || !known)
            continue;
        link->peers[peer].listened[bulk] = route;
        link->peers[peer].heard_ms = env_mono_ms();
        if (acceptable(link, peer, &message->header, bulk))
            err = ERR_OK;
    }
    zmq_msg_close(&part);
    return err;
}

enum err link_recv(struct link *link, struct link_message *message)
{
    serve_zap(link);
    /* Every connection in turn, so that one that never stops does not silence the others. */
    uint32_t places = LINK_CONNECTIONS * link->places + 1;
    for (uint32_t k = 0; k < places; k++) {
        uint32_t place = (link->recv_turn + k) % places;
        enum err err = place == places - 1
                           ? recv_listened(link, message)
                           : recv_dialled(link, place / LINK_CONNECTIONS, place % LINK_CONNECTIONS == 1, message);
        if (err != ERR_OK)
            continue;
        link->recv_burst = k == 0 ? link->recv_burst + 1 : 1;
        link->recv_turn = link->recv_burst < BURST ? place : place + 1;
        return ERR_OK;
    }
    return ERR_AGAIN;
}

bool link_guest_recv(struct link *link, struct link_guest *out)
{
    const struct guest *guest = guests_next(&link->guests, env_mono_ms());
    if (guest == NULL)
        return false;
    *out = (struct link_guest){.connection = guest->serial,
                               .key = guest->key,
                               .type = guest->type,
                               .payload = guest->said,
                               .bytes = guest->bytes};
    return true;
}

/* ---- sending ---- */

bool link_up(const struct link *link, uint32_t peer, bool bulk)
{
    return peer < link->places && (link->peers[peer].dialled[bulk].up || link->peers[peer].listened[bulk].bytes > 0);
}

static bool is_bulk(enum wire_type type)
{
    return type == WIRE_CHUNK || type == WIRE_BULK_HELLO;
}

static enum err send_failed(struct link *link, uint32_t peer, bool bulk, bool dialled)
{
    (void)dialled;
    if (zmq_errno() == EAGAIN)
        return err_set(ERR_AGAIN, "the queue is full");
    if (zmq_errno() == EHOSTUNREACH) {
        link->peers[peer].listened[bulk].bytes = 0;
        return err_set(ERR_CLOSED, "no connection");
    }
    return socket_failed("cannot send to a peer");
}

enum err link_send(struct link *link, uint32_t peer, enum wire_type type, const void *head, size_t head_bytes,
                   const void *body, size_t body_bytes)
{
    bool bulk = is_bulk(type);
    if (!link_up(link, peer, bulk))
        return err_set(ERR_CLOSED, "no connection");
    const struct dialled *d = &link->peers[peer].dialled[bulk];
    const struct link_route *route = &link->peers[peer].listened[bulk];
    bool dialled = d->socket != NULL && d->up;
    uint8_t header[WIRE_HEADER_BYTES];
    put_header(link, type, header);
    struct socket_part parts[] = {{route->id, route->bytes}, {header, sizeof header}, {head, head_bytes}};
    int first = dialled; /* the ROUTER takes a route first */
    enum err err = socket_send(dialled ? d->socket : link->router, parts + first, 2 - first, &parts[2],
                               &(struct socket_part){body, body_bytes});
    if (err == ERR_OK) {
        count_sent(link, head_bytes + body_bytes);
        link->peers[peer].out++;
    }
    return err == ERR_IO ? send_failed(link, peer, bulk, dialled) : err;
}

enum err link_guest_send(struct link *link, uint64_t connection, enum wire_type type, const void *bytes,
                         size_t bytes_count)
{
    const struct guest *guest = guests_of(&link->guests, connection);
    if (guest == NULL)
        return err_set(ERR_CLOSED, "no connection");
    uint8_t header[WIRE_HEADER_BYTES];
    put_header(link, type, header);
    struct socket_part parts[] = {{guest->route, guest->route_bytes}, {header, sizeof header}};
    enum err err =
        socket_send(link->router, parts, 2, &(struct socket_part){bytes, bytes_count}, &(struct socket_part){NULL, 0});
    if (err == ERR_OK)
        count_sent(link, bytes_count);
    if (err != ERR_IO)
        return err;
    return zmq_errno() == EAGAIN ? err_set(ERR_AGAIN, "the queue is full") : err_set(ERR_CLOSED, "no connection");
}

enum err link_say(struct link *link, uint32_t peer, const struct wire_message *message)
{
    uint8_t payload[WIRE_CONTROL_BYTES_MAX];
    size_t bytes;
    TRY(wire_pack(message, payload, &bytes));
    return link_send(link, peer, message->type, payload, bytes, NULL, 0);
}

/* ---- counters ---- */

/* Who has a connection open and says nothing on any, not even heartbeats: whatever is in the way, a new one may get
 * round it. Of the time in which we did not look ourselves nobody can tell. */
static bool is_mute(const struct link *link, const struct link_peer *peer, uint64_t now_ms)
{
    bool up = peer->dialled[0].up || peer->dialled[1].up;
    return up && now_ms > peer->heard_ms + link->mute_ms;
}

/* Who does not admit our key may know us by the one before: it was away when that changed. Who has another key than we
 * think has the next one. */
static void choose_keys(struct link_peer *peer, bool unwanted)
{
    if (unwanted)
        peer->by_before = !peer->by_before;
    else
        peer->dials_next = !peer->dials_next;
}

/* Who refused us may have heard of us since. */
static void dial_again(struct link *link, uint64_t now_ms)
{
    for (uint32_t i = 0; i < link->places; i++) {
        bool mute = is_mute(link, &link->peers[i], now_ms);
        for (int bulk = 0; bulk < LINK_CONNECTIONS; bulk++) {
            struct dialled *d = &link->peers[i].dialled[bulk];
            bool refused = d->again_ms != 0 && now_ms >= d->again_ms;
            if (!dialled_is(d) || (!refused && !mute))
                continue;
            if (refused && bulk == 0)
                choose_keys(&link->peers[i], d->unwanted);
            const struct dialled before = *d;
            dialled_close(d);
            if (dial(link, i, bulk) != ERR_OK)
                log_error("cannot dial a peer again: %s", err_text());
            d->ended = before.ended;
            d->ended_ms = before.ended_ms;
        }
    }
}

static void count_pause(struct link *link, uint64_t now_ms)
{
    uint64_t pause_ms = link->ticked_ms == 0 ? 0 : now_ms - link->ticked_ms;
    link->ticked_ms = now_ms;
    if (pause_ms < PAUSE_MS)
        return;
    for (uint32_t i = 0; i < link->places; i++)
        link->peers[i].heard_ms += pause_ms;
}

void link_tick(struct link *link)
{
    uint64_t now_ms = env_mono_ms();
    dismiss_late(link);
    let_in_again(link, now_ms);
    count_pause(link, now_ms);
    dial_again(link, now_ms);
    listen_again(link);
    for (size_t ended = backlog_check(link->backlog); ended > 0; ended--)
        news_tell(&link->news, LINK_MALFORMED, UINT32_MAX, "a message without end; its connection was closed");
}

/* ---- looking in ---- */

unsigned link_port(const struct link *link)
{
    return link->port;
}

const char *link_deaf(const struct link *link)
{
    return link->deaf;
}

uint64_t link_handed_bytes(const struct link *link)
{
    return link->handed;
}

/* Where bulk goes; -1: nowhere. */
static int bulk_fd(const struct link *link, uint32_t peer)
{
    const struct link_peer *p = peer < link->places ? &link->peers[peer] : NULL;
    return p == NULL ? -1 : p->dialled[1].up ? p->dialled[1].fd : p->listened[1].fd;
}

uint64_t link_take_unusable(struct link *link, uint32_t peer)
{
    uint64_t unusable = peer < link->places ? link->peers[peer].unusable : 0;
    if (unusable > 0)
        link->peers[peer].unusable = 0;
    return unusable;
}

uint64_t link_messages_out(const struct link *link, uint32_t peer)
{
    return peer < link->places ? link->peers[peer].out : 0;
}

bool link_is_dialled(const struct link *link, uint32_t peer)
{
    return peer < link->places && link->peers[peer].listened[0].bytes > 0;
}

bool link_undialled(const struct link *link, uint32_t peer)
{
    const struct dialled *d = peer < link->places ? &link->peers[peer].dialled[0] : NULL;
    return d != NULL && dialled_is(d) && !d->up;
}

struct traffic_socket link_bulk_socket(const struct link *link, uint32_t peer)
{
    struct traffic_socket socket;
    (void)traffic_socket(bulk_fd(link, peer), &socket);
    return socket;
}

/* Not for every byte more: by half of what there is. */
void link_make_room(struct link *link, uint32_t peer, uint64_t bytes)
{
    int fd = bulk_fd(link, peer);
    if (fd < 0 || bytes <= link->peers[peer].room + link->peers[peer].room / 2)
        return;
    link->peers[peer].room = bytes;
    (void)socket_make_room(fd, bytes, link->caps.grows_bytes);
}

const struct caps *link_caps(const struct link *link)
{
    return &link->caps;
}

void link_sample(struct link *link)
{
    traffic_sample(link->traffic);
}

struct link_counters link_counters(const struct link *link, uint32_t peer)
{
    if (peer >= link->places)
        return (struct link_counters){.rtt_us = 0};
    struct traffic_sum sum = traffic_of(link->traffic, peer);
    return (struct link_counters){
        .sent = sum.sent, .received = sum.received, .rtt_us = sum.rtt_us, .rtt_min_us = sum.rtt_min_us};
}
