/* Trusted: warns of files and directories that other users can change. */
#ifndef BACKHOP_COMMAND_TRUSTED_H
#define BACKHOP_COMMAND_TRUSTED_H

/* Complains if all users may write to `path`, or if it is a symbolic link of another user than root
 * and this one. */
void trusted_check(const char *option, const char *path);

#endif
