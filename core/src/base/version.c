#include <backhop/version.h>

const char *bh_version(void)
{
    return BACKHOP_VERSION;
}
