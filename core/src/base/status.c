#include <backhop/status.h>

bh_bytes bh_status_name(int status)
{
    switch (status) {
#define NAME(name, code, sentence)                                                                                     \
    case code:                                                                                                         \
        return bh_str(#name);
        BH_STATUS_LIST(NAME)
#undef NAME
    default:
        return bh_str("");
    }
}

bh_bytes bh_status_text(int status)
{
    switch (status) {
#define TEXT(name, code, sentence)                                                                                     \
    case code:                                                                                                         \
        return bh_str(sentence);
        BH_STATUS_LIST(TEXT)
#undef TEXT
    default:
        return bh_str("this number is not a status of backhop");
    }
}
