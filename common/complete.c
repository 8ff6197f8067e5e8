/* SPDX-License-Identifier: Apache-2.0 */
#include "common/complete.h"

#include <ctype.h>
#include <string.h>

/* ---- what a word is ---- */

enum kind { WORDS, FILES, FOLDERS, ANYTHING };

static enum kind kind_of(const char *value_name)
{
    static const char *const files[] = {"FILE", "PATH", "SOCKET"}, *const folders[] = {"DIR", "FOLDER"};
    if (strchr(value_name, '|') != NULL)
        return WORDS;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (strcmp(value_name, files[i]) == 0)
            return FILES;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        if (strcmp(value_name, folders[i]) == 0)
            return FOLDERS;
    return ANYTHING;
}

/* "cpu|cuda|auto" with blanks. */
static void print_words(const char *value_name, FILE *file)
{
    for (; *value_name != '\0'; value_name++)
        fputc(*value_name == '|' ? ' ' : *value_name, file);
}

/* What stands behind the command's name; "": nothing does. */
static const char *argument_of(const struct commands_row *row)
{
    const char *blank = strchr(row->usage, ' ');
    return blank != NULL ? blank + 1 : "";
}

/* "_diloco_worker" */
static void print_function(const struct commands *commands, FILE *file)
{
    fputc('_', file);
    for (const char *c = commands->program; *c != '\0'; c++)
        fputc(isalnum((unsigned char)*c) ? *c : '_', file);
}

/* For words between '…'. */
static void print_quoted(const char *text, const char *backslashed, FILE *file)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            fputs("'\\''", file);
        else if (strchr(backslashed, *text) != NULL)
            fprintf(file, "\\%c", *text);
        else
            fputc(*text, file);
    }
}

/* The names behind it are asked of the program. */
static bool has_names(const struct commands *commands, const struct commands_row *row)
{
    return commands->tells_names != NULL && strcmp(argument_of(row), "NAME") == 0;
}

/* Of the options by which the program finds out names: "--home | --socket" with that gap; `with`: behind each. */
static void print_told_by(const struct commands *commands, const char *with, const char *gap, FILE *file)
{
    bool first = true;
    for (size_t o = 0; o < commands->options_count; o++) {
        if (!commands_named(commands->told_by, commands->options[o].name))
            continue;
        fprintf(file, "%s%s%s%s", first ? "" : gap, args_dashes(commands->options[o].name), commands->options[o].name,
                with);
        first = false;
    }
}

/* A command of several forms stands where its first one does. */
static bool is_first(const struct commands *commands, size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (strcmp(commands->rows[i].name, commands->rows[at].name) == 0)
            return false;
    return true;
}

static bool is_taken(const struct commands *commands, const char *name, const char *option)
{
    bool taken = strcmp(option, "help") == 0;
    for (size_t i = 0; i < commands->rows_count; i++)
        taken |= strcmp(commands->rows[i].name, name) == 0 && commands_named(commands->rows[i].takes, option);
    return taken;
}

/* The choices of a key, with a blank before each. */
static void print_choices(const struct conf_key *key, FILE *file)
{
    if (key->type == CONF_BOOL)
        fputs(" yes no", file);
    for (size_t i = 0; key->choices != NULL && key->choices[i] != NULL; i++)
        fprintf(file, " %s", key->choices[i]);
}

static bool has_choices(const struct conf_key *key)
{
    return key->type == CONF_BOOL || key->choices != NULL;
}

static size_t keys_of(const struct commands *commands)
{
    return commands->set != NULL ? commands->set->keys_count : 0;
}

/* ---- bash ---- */

static const char bash_begin[] =
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} before='' command='' option i\n"
    "    local -a place=()\n"
    "    COMPREPLY=()\n"
    "    # bash cuts words at '=', which is a word of its own then.\n"
    "    ((COMP_CWORD > 1)) && before=${COMP_WORDS[COMP_CWORD-2]}\n"
    "    if [[ $cur == '=' ]]; then\n"
    "        cur=''\n"
    "    elif [[ $prev == '=' ]]; then\n"
    "        prev=$before\n"
    "        ((COMP_CWORD > 2)) && before=${COMP_WORDS[COMP_CWORD-3]}\n"
    "    fi\n"
    "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "        case ${COMP_WORDS[i]} in\n";

static const char bash_words[] = "        -* | =) ;;\n"
                                 "        *) [[ -n $command ]] || command=${COMP_WORDS[i]} ;;\n"
                                 "        esac\n"
                                 "    done\n";

static void bash_names(const struct commands *commands, bool with_value, const char *gap, FILE *file)
{
    bool first = true;
    for (size_t o = 0; o < commands->options_count; o++) {
        const struct args_option *option = &commands->options[o];
        if ((option->value_name != NULL) != with_value)
            continue;
        fprintf(file, "%s%s%s", first ? "" : gap, args_dashes(option->name), option->name);
        first = false;
    }
}

static void bash_reply(enum kind kind, const char *value_name, FILE *file)
{
    switch (kind) {
    case WORDS:
        fputs("COMPREPLY=($(compgen -W '", file);
        print_words(value_name, file);
        fputs("' -- \"$cur\"))", file);
        break;
    case FILES:
        fputs("compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")", file);
        break;
    case FOLDERS:
        fputs("compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- \"$cur\")", file);
        break;
    case ANYTHING: fputs(":", file); break;
    }
}

/* Values of options, by the word before. */
static void bash_values(const struct commands *commands, FILE *file)
{
    fputs("    case $prev in\n", file);
    for (size_t o = 0; o < commands->options_count; o++) {
        const struct args_option *option = &commands->options[o];
        if (option->value_name == NULL)
            continue;
        fprintf(file, "    %s%s) ", args_dashes(option->name), option->name);
        if (strcmp(option->name, "set") == 0 && commands->set != NULL) {
            fputs("compopt -o nospace 2>/dev/null; COMPREPLY=($(compgen -W \"$keys\" -- \"$cur\"))", file);
        } else {
            bash_reply(kind_of(option->value_name), option->value_name, file);
        }
        fputs("; return ;;\n", file);
    }
    fputs("    esac\n", file);
}

/* "--set sync.codec=in": the key stands before '='. */
static void bash_keys(const struct commands *commands, FILE *file)
{
    if (commands->set == NULL)
        return;
    fputs("    local keys='", file);
    for (size_t k = 0; k < keys_of(commands); k++)
        fprintf(file, "%s.%s= ", commands->set->keys[k].section, commands->set->keys[k].name);
    fputs("'\n    if [[ $before == --set ]]; then\n        case $prev in\n", file);
    for (size_t k = 0; k < keys_of(commands); k++) {
        const struct conf_key *key = &commands->set->keys[k];
        if (!has_choices(key))
            continue;
        fprintf(file, "        %s.%s) COMPREPLY=($(compgen -W '", key->section, key->name);
        print_choices(key, file);
        fputs("' -- \"$cur\")) ;;\n", file);
    }
    fputs(
        "        esac\n        [[ ${COMP_WORDS[COMP_CWORD]} == '=' || ${COMP_WORDS[COMP_CWORD-1]} == '=' ]] && return\n"
        "    fi\n",
        file);
}

static void bash_commands(const struct commands *commands, FILE *file)
{
    fputs("    case $command in\n    '') words='", file);
    for (size_t i = 0; i < commands->rows_count; i++)
        if (is_first(commands, i))
            fprintf(file, "%s ", commands->rows[i].name);
    fputs("' options='--help --version' ;;\n", file);
    for (size_t i = 0; i < commands->rows_count; i++) {
        if (!is_first(commands, i))
            continue;
        fprintf(file, "    %s) options='", commands->rows[i].name);
        for (size_t o = 0; o < commands->options_count; o++)
            if (is_taken(commands, commands->rows[i].name, commands->options[o].name))
                fprintf(file, "%s%s ", args_dashes(commands->options[o].name), commands->options[o].name);
        fputs("'", file);
        const char *argument = argument_of(&commands->rows[i]);
        if (strcmp(argument, "COMMAND") == 0) {
            fputs(" words='", file);
            for (size_t k = 0; k < commands->rows_count; k++)
                if (is_first(commands, k))
                    fprintf(file, "%s ", commands->rows[k].name);
            fputs("'", file);
        } else if (kind_of(argument) == WORDS) {
            fputs(" words='", file);
            print_words(argument, file);
            fputs("'", file);
        } else if (kind_of(argument) == FILES) {
            fputs(" files=1", file);
        } else if (has_names(commands, &commands->rows[i])) {
            fprintf(file, " words=$(\"${COMP_WORDS[0]}\" \"${place[@]}\" %s 2>/dev/null)", commands->tells_names);
        }
        fputs(" ;;\n", file);
    }
    fputs("    esac\n", file);
}

/* What finds the program's names, with its value as the shell would give it. */
static void bash_place(const struct commands *commands, FILE *file)
{
    if (commands->tells_names == NULL)
        return;
    fputs("            case $option in\n            ", file);
    print_told_by(commands, "", " | ", file);
    fputs(") place+=(\"$option\" \"${COMP_WORDS[i]/#\\~\\//$HOME/}\") ;;\n            esac\n", file);
}

static void print_bash(const struct commands *commands, FILE *file)
{
    fprintf(file, "# bash completion of %s, as it printed it: %s completion bash\n", commands->program,
            commands->program);
    print_function(commands, file);
    fprintf(file, "() {\n%s        ", bash_begin);
    bash_names(commands, true, " | ", file);
    fputs(")\n            option=${COMP_WORDS[i]}\n            ((i++))\n"
          "            [[ ${COMP_WORDS[i]} != '=' ]] || ((i++))\n",
          file);
    bash_place(commands, file);
    fprintf(file, "            ;;\n%s", bash_words);
    bash_keys(commands, file);
    bash_values(commands, file);
    fputs("    local words='' options='' files=''\n", file);
    bash_commands(commands, file);
    fputs("    if [[ $cur == -* || -z $words$files ]]; then\n"
          "        words=$options\n"
          "    elif [[ -n $files ]]; then\n        ",
          file);
    bash_reply(FILES, "", file);
    fputs("\n        return\n    fi\n    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -F ", file);
    print_function(commands, file);
    fprintf(file, " %s\n", commands->program);
}

/* ---- zsh ---- */

static void zsh_action(const struct commands *commands, const char *value_name, FILE *file)
{
    switch (kind_of(value_name)) {
    case WORDS:
        fputc('(', file);
        print_words(value_name, file);
        fputc(')', file);
        break;
    case FILES: fputs("_files", file); break;
    case FOLDERS: fputs("_files -/", file); break;
    case ANYTHING:
        if (strcmp(value_name, "COMMAND") == 0) {
            print_function(commands, file);
            fputs("_commands", file);
        } else {
            fputc(' ', file);
        }
        break;
    }
}

/* '*--set=[help]:S.KEY=VALUE:_x_keys' */
static void zsh_option(const struct commands *commands, const struct args_option *option, FILE *file)
{
    fprintf(file, " \\\n            '%s%s%s%s[", option->type == ARGS_LIST ? "*" : "", args_dashes(option->name),
            option->name,
            option->value_name == NULL  ? ""
            : strlen(option->name) == 1 ? "+"
                                        : "=");
    print_quoted(option->help, "[]\\", file);
    fputc(']', file);
    if (option->value_name != NULL) {
        fputc(':', file);
        print_quoted(option->value_name, ":\\", file);
        fputc(':', file);
        if (strcmp(option->name, "set") == 0 && commands->set != NULL) {
            print_function(commands, file);
            fputs("_keys", file);
        } else {
            zsh_action(commands, option->value_name, file);
        }
    }
    fputc('\'', file);
}

static void zsh_commands(const struct commands *commands, FILE *file)
{
    print_function(commands, file);
    fputs("_commands() {\n    local -a commands=(\n", file);
    for (size_t i = 0; i < commands->rows_count; i++) {
        if (!is_first(commands, i))
            continue;
        fprintf(file, "        '%s:", commands->rows[i].name);
        print_quoted(commands->rows[i].help, ":\\", file);
        fputs("'\n", file);
    }
    fputs("    )\n    _describe command commands\n}\n", file);
}

static void zsh_keys(const struct commands *commands, FILE *file)
{
    if (commands->set == NULL)
        return;
    print_function(commands, file);
    fputs("_keys() {\n    if compset -P '*='; then\n        case ${IPREFIX#--set=} in\n", file);
    for (size_t k = 0; k < keys_of(commands); k++) {
        const struct conf_key *key = &commands->set->keys[k];
        if (!has_choices(key))
            continue;
        fprintf(file, "        %s.%s=) compadd --", key->section, key->name);
        print_choices(key, file);
        fputs(" ;;\n", file);
    }
    fputs("        esac\n    else\n        compadd -S '' --", file);
    for (size_t k = 0; k < keys_of(commands); k++)
        fprintf(file, " %s.%s=", commands->set->keys[k].section, commands->set->keys[k].name);
    fputs("\n    fi\n}\n", file);
}

static void zsh_names(const struct commands *commands, FILE *file)
{
    if (commands->tells_names == NULL)
        return;
    print_function(commands, file);
    fputs("_names() {\n    local -a place found\n    local i\n    for ((i = 2; i < CURRENT; i++)); do\n"
          "        case ${words[i]} in\n        ",
          file);
    print_told_by(commands, "", "|", file);
    fputs(") place+=(${words[i]} ${${(Q)words[i+1]}/#\\~\\//$HOME/}) ;;\n        ", file);
    print_told_by(commands, "=*", "|", file);
    fprintf(file,
            ") place+=(${(Q)words[i]}) ;;\n        esac\n    done\n"
            "    found=(${(f)\"$(${words[1]} $place %s 2>/dev/null)\"})\n    compadd -a found\n}\n",
            commands->tells_names);
}

static void print_zsh(const struct commands *commands, FILE *file)
{
    fprintf(file, "#compdef %s\n# As %s completion zsh printed it.\n", commands->program, commands->program);
    zsh_commands(commands, file);
    zsh_keys(commands, file);
    zsh_names(commands, file);
    print_function(commands, file);
    fputs(
        "() {\n    local i command=''\n    for ((i = 2; i < CURRENT; i++)); do\n        case ${words[i]} in\n        ",
        file);
    bash_names(commands, true, "|", file);
    fputs(") ((i++)) ;;\n        -*) ;;\n        *) command=${words[i]}; break ;;\n        esac\n    done\n"
          "    case $command in\n    '')\n        _arguments",
          file);
    for (size_t o = 0; o < commands->options_count; o++)
        if (commands_named(commands->common, commands->options[o].name))
            zsh_option(commands, &commands->options[o], file);
    fputs(" \\\n            '1:command:", file);
    print_function(commands, file);
    fputs("_commands' ;;\n", file);
    for (size_t i = 0; i < commands->rows_count; i++) {
        const char *argument = argument_of(&commands->rows[i]);
        if (!is_first(commands, i))
            continue;
        fprintf(file, "    %s)\n        _arguments '1: : '", commands->rows[i].name);
        if (argument[0] != '\0') {
            fputs(" '2:", file);
            print_quoted(argument, ":\\", file);
            fputc(':', file);
            if (has_names(commands, &commands->rows[i])) {
                print_function(commands, file);
                fputs("_names", file);
            } else {
                zsh_action(commands, argument, file);
            }
            fputc('\'', file);
        }
        for (size_t o = 0; o < commands->options_count; o++)
            if (is_taken(commands, commands->rows[i].name, commands->options[o].name))
                zsh_option(commands, &commands->options[o], file);
        fputs(" ;;\n", file);
    }
    fputs("    esac\n}\nif [[ $funcstack[1] == ", file);
    print_function(commands, file);
    fputs(" ]]; then\n    ", file);
    print_function(commands, file);
    fputs(" \"$@\"\nelse\n    compdef ", file);
    print_function(commands, file);
    fprintf(file, " %s\nfi\n", commands->program);
}

/* ---- fish ---- */

static void fish_keys(const struct commands *commands, FILE *file)
{
    if (commands->set == NULL)
        return;
    fputs("function _", file);
    print_function(commands, file);
    fputs("_keys\n    printf '%s\\n'", file);
    for (size_t k = 0; k < keys_of(commands); k++) {
        const struct conf_key *key = &commands->set->keys[k];
        fprintf(file, " %s.%s=", key->section, key->name);
        if (key->type == CONF_BOOL)
            fprintf(file, "yes %s.%s=no", key->section, key->name);
        for (size_t c = 0; key->choices != NULL && key->choices[c] != NULL; c++)
            if (c > 0)
                fprintf(file, " %s.%s=%s", key->section, key->name, key->choices[c]);
            else
                fprintf(file, "%s", key->choices[c]);
    }
    fputs("\nend\n", file);
}

static void fish_value(const struct commands *commands, const struct args_option *option, FILE *file)
{
    if (option->value_name == NULL)
        return;
    if (strcmp(option->name, "set") == 0 && commands->set != NULL) {
        fputs(" -x -a '(_", file);
        print_function(commands, file);
        fputs("_keys)'", file);
        return;
    }
    switch (kind_of(option->value_name)) {
    case WORDS:
        fputs(" -x -a '", file);
        print_words(option->value_name, file);
        fputc('\'', file);
        break;
    case FILES: fputs(" -r -F", file); break;
    case FOLDERS: fputs(" -x -a '(__fish_complete_directories)'", file); break;
    case ANYTHING: fputs(" -x", file); break;
    }
}

static void fish_names(const struct commands *commands, FILE *file)
{
    if (commands->tells_names == NULL)
        return;
    fputs("function _", file);
    print_function(commands, file);
    fputs("_names\n    set -l words (commandline -opc)\n    set -l place\n    set -l value 0\n"
          "    for word in $words[2..-1]\n        if test $value = 1\n"
          "            set place $place (string replace -r '^~/' $HOME/ -- $word)\n            set value 0\n"
          "            continue\n        end\n        switch $word\n            case ",
          file);
    print_told_by(commands, "", " ", file);
    fputs("\n                set place $place $word\n                set value 1\n            case '", file);
    print_told_by(commands, "=*", "' '", file);
    fprintf(file,
            "'\n                set place $place $word\n        end\n    end\n"
            "    command $words[1] $place %s 2>/dev/null\nend\n",
            commands->tells_names);
}

static void fish_argument(const struct commands *commands, const struct commands_row *row, FILE *file)
{
    const char *argument = argument_of(row);
    enum kind kind = kind_of(argument);
    bool names = has_names(commands, row);
    if (strcmp(argument, "COMMAND") != 0 && kind != WORDS && kind != FILES && !names)
        return;
    fprintf(file, "complete -c %s -n '_", commands->program);
    print_function(commands, file);
    fprintf(file, "_in %s'", row->name);
    if (kind == FILES) {
        fputs(" -F\n", file);
        return;
    }
    fputs(" -a '", file);
    if (names) {
        fputs("(_", file);
        print_function(commands, file);
        fputs("_names)'\n", file);
        return;
    }
    for (size_t i = 0; kind != WORDS && i < commands->rows_count; i++)
        if (is_first(commands, i))
            fprintf(file, "%s ", commands->rows[i].name);
    if (kind == WORDS)
        print_words(argument, file);
    fputs("'\n", file);
}

/* Which command stands there, past the values of options; and whether it is one of these, or (without) none. */
static void fish_functions(const struct commands *commands, FILE *file)
{
    fputs("function _", file);
    print_function(commands, file);
    fputs("_in\n    set -l words (commandline -opc)\n    set -l value 0\n    set -l command\n"
          "    for word in $words[2..-1]\n        if test $value = 1\n            set value 0\n            continue\n"
          "        end\n        switch $word\n            case ",
          file);
    bash_names(commands, true, " ", file);
    fputs("\n                set value 1\n            case '-*'\n            case '*'\n"
          "                set command $word\n                break\n        end\n    end\n"
          "    if test (count $argv) = 0\n        test -z \"$command\"\n    else\n"
          "        test -n \"$command\"; and contains -- $command $argv\n    end\nend\n",
          file);
}

static void fish_if(const struct commands *commands, FILE *file)
{
    fprintf(file, "complete -c %s -n '_", commands->program);
    print_function(commands, file);
    fputs("_in", file);
}

static void fish_option(const struct commands *commands, const struct args_option *option, bool alone, FILE *file)
{
    fish_if(commands, file);
    for (size_t i = 0; !alone && i < commands->rows_count; i++)
        if (is_first(commands, i) && is_taken(commands, commands->rows[i].name, option->name))
            fprintf(file, " %s", commands->rows[i].name);
    fprintf(file, "' -%s %s", strlen(option->name) == 1 ? "s" : "l", option->name);
    fish_value(commands, option, file);
    fputs(" -d '", file);
    print_quoted(option->help, "\\", file);
    fputs("'\n", file);
}

static bool is_of_any(const struct commands *commands, const char *option)
{
    bool any = strcmp(option, "help") == 0;
    for (size_t i = 0; i < commands->rows_count; i++)
        any |= commands_named(commands->rows[i].takes, option);
    return any;
}

static void print_fish(const struct commands *commands, FILE *file)
{
    fprintf(file, "# fish completion of %s, as it printed it: %s completion fish\ncomplete -c %s -f\n",
            commands->program, commands->program, commands->program);
    fish_functions(commands, file);
    fish_keys(commands, file);
    fish_names(commands, file);
    for (size_t i = 0; i < commands->rows_count; i++) {
        if (!is_first(commands, i))
            continue;
        fish_if(commands, file);
        fprintf(file, "' -a %s -d '", commands->rows[i].name);
        print_quoted(commands->rows[i].help, "\\", file);
        fputs("'\n", file);
        fish_argument(commands, &commands->rows[i], file);
    }
    for (size_t o = 0; o < commands->options_count; o++) {
        const struct args_option *option = &commands->options[o];
        if (commands_named(commands->common, option->name))
            fish_option(commands, option, true, file);
        if (is_of_any(commands, option->name))
            fish_option(commands, option, false, file);
    }
}

/* ---- all ---- */

enum err complete_print(const struct commands *commands, const char *shell, FILE *file)
{
    static const struct {
        const char *shell;
        void (*print)(const struct commands *commands, FILE *file);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    for (size_t i = 0; shell != NULL && i < sizeof shells / sizeof shells[0]; i++) {
        if (strcmp(shells[i].shell, shell) != 0)
            continue;
        shells[i].print(commands, file);
        return fflush(file) == 0 ? ERR_OK : err_set_errno(ERR_IO, "cannot write");
    }
    return err_set(ERR_ARG, "%s completion: for which shell? %s completion bash, zsh or fish", commands->program,
                   commands->program);
}
