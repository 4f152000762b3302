#include "common/trusted.h"

#include "common/output.h"

#include <sys/stat.h>
#include <unistd.h>

void trusted_check(const char *option, const char *path)
{
    struct stat link, target;
    if (lstat(path, &link) != 0 || stat(path, &target) != 0)
        return;
    if (S_ISLNK(link.st_mode) && link.st_uid != geteuid() && link.st_uid != 0)
        complain("--%s: %s is a symbolic link of another user, who can change its target; name the target", option,
                 path);
    else if (target.st_mode & S_IWOTH)
        complain("--%s: all users may write to %s; run 'chmod o-w' on it", option, path);
}
