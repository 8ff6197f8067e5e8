#include "common/program.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/mem.h"

static bool is_program(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

/* `*out` is NULL if it is not there. */
static enum err in_folder(const char *folder, size_t folder_bytes, const char *name, char **out)
{
    TRY(mem_printf(out, "%.*s%s%s", (int)folder_bytes, folder, folder_bytes > 0 ? "/" : "", name));
    if (is_program(*out))
        return ERR_OK;
    mem_free(*out);
    *out = NULL;
    return ERR_OK;
}

enum err program_find(const char *name, char **out)
{
    char self[512];
    *out = NULL;
    if (strchr(name, '/') != NULL) {
        TRY(in_folder("", 0, name, out));
        return *out != NULL ? ERR_OK : err_set(ERR_NOTFOUND, "%s: no program there", name);
    }
    ssize_t bytes = readlink("/proc/self/exe", self, sizeof self - 1);
    if (bytes > 0) {
        self[bytes] = '\0';
        TRY(in_folder(self, (size_t)(strrchr(self, '/') - self), name, out));
    }
    const char *folders = getenv("PATH");
    while (*out == NULL && folders != NULL) {
        const char *end = strchr(folders, ':');
        TRY(in_folder(folders, strcspn(folders, ":"), name, out));
        folders = end != NULL ? end + 1 : NULL;
    }
    return *out != NULL ? ERR_OK : err_set(ERR_NOTFOUND, "%s: no such program beside this one or in PATH", name);
}
