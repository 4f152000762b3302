#include "base/utf8.h"

static int is_continuation(char byte)
{
    return ((unsigned char)byte & 0xC0) == 0x80;
}

/* Returns how many bytes follow a first byte; -1 if it begins no character. */
static int count_following(unsigned char first)
{
    if (first < 0x80)
        return 0;
    if (first >= 0xC2 && first <= 0xDF)
        return 1;
    if ((first & 0xF0) == 0xE0)
        return 2;
    return first >= 0xF0 && first <= 0xF4 ? 3 : -1;
}

size_t bh__character_size(bh_bytes text)
{
    const unsigned char *bytes = (const unsigned char *)text.data;
    int more = count_following(bytes[0]);
    if (more < 0 || text.size <= (size_t)more)
        return 0;
    for (int i = 1; i <= more; i++)
        if (!is_continuation(text.data[i]))
            return 0;
    /*
     * Overlong forms, surrogates and values above U+10FFFF are not UTF-8: RFC 3629, table of
     * section 4.
     */
    int is_wrong = (bytes[0] == 0xE0 && bytes[1] < 0xA0) || (bytes[0] == 0xED && bytes[1] > 0x9F) ||
                   (bytes[0] == 0xF0 && bytes[1] < 0x90) || (bytes[0] == 0xF4 && bytes[1] > 0x8F);
    return is_wrong ? 0 : (size_t)more + 1;
}

int bh__is_control(const char *character, size_t size)
{
    const unsigned char *at = (const unsigned char *)character;
    if (size == 1)
        return at[0] < ' ' || at[0] == 0x7F;
    if (size == 2)
        return at[0] == 0xC2 && at[1] < 0xA0; /* C1 */
    if (size != 3 || at[0] != 0xE2)
        return 0;
    return (at[1] == 0x80 && at[2] >= 0xA8 && at[2] <= 0xAE) || (at[1] == 0x81 && at[2] >= 0xA6 && at[2] <= 0xA9);
}

static int is_utf8(bh_bytes text, int may_control)
{
    size_t size = 0;
    for (size_t i = 0; i < text.size; i += size) {
        size = bh__character_size((bh_bytes){text.data + i, text.size - i});
        if (size == 0 || (!may_control && bh__is_control(text.data + i, size)))
            return 0;
    }
    return 1;
}

int bh__is_utf8(bh_bytes text)
{
    return is_utf8(text, 1);
}

int bh__is_shown(bh_bytes text)
{
    return is_utf8(text, 0);
}

bh_bytes bh__cut(bh_bytes text, size_t most)
{
    if (text.size <= most)
        return text;
    size_t end = most;
    for (int i = 0; i < 3 && end > 0 && is_continuation(text.data[end]); i++)
        end--;
    text.size = is_continuation(text.data[end]) ? most : end;
    return text;
}
