/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transport/ident.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/mem.h"

_Static_assert((int)IDENT_KEY_BYTES == (int)crypto_sign_PUBLICKEYBYTES, "a public key");
_Static_assert((int)IDENT_SECRET_BYTES == (int)crypto_sign_SECRETKEYBYTES, "a secret key");
_Static_assert((int)IDENT_SIGNATURE_BYTES == (int)crypto_sign_BYTES, "a signature");

static const char secret_mark[] = "secret = ";
/* Of an Ed25519 public key: in the last byte the sign of x; the first byte of the smallest y that is not below the
 * prime. */
enum { SIGN_BIT = 0x80, Y_LEAST_BYTE = 0xed };
#define SAME_USER ((uid_t)-1)
#define SAME_GROUP ((gid_t)-1)
enum { KEY_FILE_BYTES_MAX = 4096, BASE64 = sodium_base64_VARIANT_URLSAFE_NO_PADDING };

/* All that follows from the seed. */
static void fill(struct ident *ident, const uint8_t seed[crypto_sign_SEEDBYTES])
{
    crypto_sign_seed_keypair(ident->key, ident->secret, seed);
    ident_text(ident->key, ident->public_text);
    (void)!crypto_sign_ed25519_pk_to_curve25519(ident->curve_key, ident->key); /* ours is a good one */
    (void)!crypto_sign_ed25519_sk_to_curve25519(ident->curve_secret, ident->secret);
}

enum err ident_generate(struct ident *ident)
{
    uint8_t seed[crypto_sign_SEEDBYTES];
    if (sodium_init() < 0)
        return err_set(ERR_STATE, "libsodium cannot start: this machine gives it no randomness");
    randombytes_buf(seed, sizeof seed);
    fill(ident, seed);
    sodium_memzero(seed, sizeof seed);
    return ERR_OK;
}

/* To a file that was not there, nor a link: whoever may write to its folder could have put one that others can read. It
 * is given away by the descriptor, since its name may be another file's by then. */
static enum err write_new(const char *path, const char *text, uid_t user, gid_t group)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (fd < 0 && errno == EEXIST)
        return err_set(ERR_STATE, "%s: exists already; remove it first if the island is to have a new key", path);
    if (fd < 0)
        return fsio_failed(ERR_IO, "cannot create %s", path);
    enum err err = ERR_OK;
    if (user != SAME_USER && fchown(fd, user, group) != 0)
        err = err_set_errno(ERR_IO, "%s: cannot give it to user %u", path, (unsigned)user);
    if (err == ERR_OK)
        err = fsio_write_all(fd, text, strlen(text), path);
    if (err == ERR_OK && fsync(fd) != 0)
        err = fsio_failed(ERR_IO, "%s: cannot flush", path);
    close(fd);
    if (err == ERR_OK)
        err = fsio_sync_folder_of(path);
    if (err != ERR_OK)
        unlink(path);
    return err;
}

enum err ident_save(const struct ident *ident, const char *path)
{
    return ident_save_for(ident, path, SAME_USER, SAME_GROUP);
}

enum err ident_save_for(const struct ident *ident, const char *path, uid_t user, gid_t group)
{
    char seed[IDENT_TEXT_BYTES];
    char *text;
    ident_text(ident->secret, seed); /* which begins with it */
    TRY(mem_printf(
        &text,
        "# Secret key of a diloco island. Whoever has it is this island: keep it readable by its user alone.\n"
        "# Public key, for the other islands' configurations: %s\n"
        "%s%s\n",
        ident->public_text, secret_mark, seed));
    enum err err = write_new(path, text, user, group);
    sodium_memzero(text, strlen(text));
    sodium_memzero(seed, sizeof seed);
    mem_free(text);
    return err;
}

static enum err holds_no_key(const char *path)
{
    return err_set(ERR_CONF,
                   "key file %s: holds no key, or a damaged one; restore it from a copy, or make another with: "
                   "dilococtl keygen FILE",
                   path);
}

static enum err check_private(const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0 && errno == EACCES)
        return err_set(ERR_IO,
                       "key file %s: this user may not look into its folder; call this with sudo, or, where it is the "
                       "daemon's user, give it the folder (chown -R)",
                       path);
    if (stat(path, &status) != 0)
        return err_set_errno(errno == ENOENT ? ERR_NOTFOUND : ERR_IO, "key file %s: make one with: dilococtl keygen %s",
                             path, path);
    if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return err_set(ERR_CONF, "key file %s: others may read it; run: chmod 600 %s", path, path);
    return status.st_size > KEY_FILE_BYTES_MAX ? holds_no_key(path) : ERR_OK;
}

/* 32 bytes from so many characters, all of them. */
static bool decode(const char *text, size_t length, uint8_t *out)
{
    size_t bytes;
    return length == IDENT_TEXT_BYTES - 1 &&
           sodium_base642bin(out, IDENT_KEY_BYTES, text, length, NULL, &bytes, NULL, BASE64) == 0 &&
           bytes == IDENT_KEY_BYTES;
}

enum err ident_load(const char *path, struct ident *ident)
{
    char *text;
    size_t bytes;
    uint8_t seed[crypto_sign_SEEDBYTES];
    enum err err = ERR_OK;
    TRY(check_private(path));
    if (sodium_init() < 0)
        return err_set(ERR_STATE, "libsodium cannot start: this machine gives it no randomness");
    TRY(fsio_read(path, KEY_FILE_BYTES_MAX, &text, &bytes));
    const char *mark = strstr(text, secret_mark);
    const char *secret = mark != NULL ? mark + strlen(secret_mark) : "";
    if (!decode(secret, strcspn(secret, " \r\n"), seed))
        err = holds_no_key(path);
    else
        fill(ident, seed);
    sodium_memzero(text, bytes);
    sodium_memzero(seed, sizeof seed);
    mem_free(text);
    return err;
}

void ident_text(const uint8_t *key, char *text)
{
    sodium_bin2base64(text, IDENT_TEXT_BYTES, key, IDENT_KEY_BYTES, BASE64);
}

/* y of the point (RFC 8032, 5.1.2) below 2^255 - 19: the same point has no second spelling. */
static bool is_canonical(const uint8_t *key)
{
    if (key[0] < Y_LEAST_BYTE || (key[IDENT_KEY_BYTES - 1] & ~SIGN_BIT) != UINT8_MAX - SIGN_BIT)
        return true;
    for (size_t i = 1; i < IDENT_KEY_BYTES - 1; i++)
        if (key[i] != UINT8_MAX)
            return true;
    return false;
}

int ident_compare(const uint8_t *left, const uint8_t *right)
{
    int order = memcmp(left, right, IDENT_KEY_BYTES - 1);
    return order != 0 ? order : (left[IDENT_KEY_BYTES - 1] & ~SIGN_BIT) - (right[IDENT_KEY_BYTES - 1] & ~SIGN_BIT);
}

enum err ident_curve(const uint8_t *key, uint8_t *curve_key)
{
    if (!is_canonical(key) || crypto_sign_ed25519_pk_to_curve25519(curve_key, key) != 0)
        return err_set(ERR_CONF, "not a public key");
    return ERR_OK;
}

void ident_sign(const struct ident *ident, const void *message, size_t bytes, uint8_t *signature)
{
    crypto_sign_detached(signature, NULL, message, bytes, ident->secret);
}

static _Thread_local uint64_t checks, checks_failed;

bool ident_signed(const uint8_t *key, const void *message, size_t bytes, const uint8_t *signature)
{
    bool good = crypto_sign_verify_detached(signature, message, bytes, key) == 0;
    checks++;
    checks_failed += !good;
    return good;
}

uint64_t ident_checks(void)
{
    return checks;
}

uint64_t ident_checks_failed(void)
{
    return checks_failed;
}
