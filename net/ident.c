#include "net/ident.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "common/fsio.h"
#include "common/mem.h"

static const char secret_mark[] = "secret = ";
enum { KEY_FILE_BYTES_MAX = 4096 };

enum err ident_generate(struct ident *ident)
{
    if (zmq_curve_keypair(ident->public_text, ident->secret_text) != 0)
        return err_set(ERR_STATE, "this ZeroMQ was built without CURVE; install one with libsodium");
    return ERR_OK;
}

enum err ident_save(const struct ident *ident, const char *path)
{
    if (access(path, F_OK) == 0)
        return err_set(ERR_STATE, "%s: exists already; remove it first if the island is to have a new key", path);
    char *text;
    TRY(mem_printf(
        &text,
        "# Secret key of a diloco island. Whoever has it is this island: keep it readable by its user alone.\n"
        "# Public key, for the other islands' configurations: %s\n"
        "%s%s\n",
        ident->public_text, secret_mark, ident->secret_text));
    enum err err = fsio_replace(path, text, strlen(text), 0600);
    mem_free(text);
    return err;
}

static enum err check_private(const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return err_set_errno(errno == ENOENT ? ERR_NOTFOUND : ERR_IO, "key file %s: make one with: dilococtl keygen %s",
                             path, path);
    if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return err_set(ERR_CONF, "key file %s: others may read it; run: chmod 600 %s", path, path);
    return ERR_OK;
}

enum err ident_load(const char *path, struct ident *ident)
{
    char *text;
    size_t bytes;
    TRY(check_private(path));
    TRY(fsio_read(path, KEY_FILE_BYTES_MAX, &text, &bytes));
    const char *mark = strstr(text, secret_mark);
    enum err err = ERR_OK;
    if (mark == NULL || strcspn(mark + sizeof secret_mark - 1, " \r\n") != IDENT_TEXT_BYTES - 1) {
        err = err_set(ERR_CONF, "key file %s: holds no key; make one with: dilococtl keygen FILE", path);
    } else {
        memcpy(ident->secret_text, mark + sizeof secret_mark - 1, IDENT_TEXT_BYTES - 1);
        ident->secret_text[IDENT_TEXT_BYTES - 1] = '\0';
        uint8_t key[IDENT_KEY_BYTES];
        if (zmq_z85_decode(key, ident->secret_text) == NULL ||
            zmq_curve_public(ident->public_text, ident->secret_text) != 0)
            err = err_set(ERR_CONF, "key file %s: its key is damaged; restore it from a copy", path);
    }
    mem_free(text);
    return err;
}

enum err ident_parse(const char *text, uint8_t *key)
{
    if (strlen(text) != IDENT_TEXT_BYTES - 1 || zmq_z85_decode(key, text) == NULL)
        return err_set(ERR_CONF, "\"%s\" is not a public key: 40 characters as dilococtl keygen prints them", text);
    return ERR_OK;
}

void ident_text(const uint8_t *key, char *text)
{
    zmq_z85_encode(text, key, IDENT_KEY_BYTES);
}
