/* UTF-8, and the characters that untrusted text must not write to terminals and logs. Internal. */
#ifndef BACKHOP_UTF8_H
#define BACKHOP_UTF8_H

#include <backhop/bytes.h>

/*
 * Returns the size in bytes of the first UTF-8 character of a text that is not empty (RFC 3629); 0
 * if it is malformed.
 */
size_t bh__character_size(bh_bytes text);
int bh__is_utf8(bh_bytes text);
/*
 * Returns 1 if a well-formed character of `size` bytes controls a terminal, ends a line or turns
 * its direction.
 *
 * These characters do: C0, DEL, C1, U+2028, U+2029, U+202A to U+202E, U+2066 to U+2069.
 */
int bh__is_control(const char *character, size_t size);
/* Returns 1 if a text is UTF-8 without control characters. */
int bh__is_shown(bh_bytes text);
/*
 * Returns the longest beginning of at most `most` bytes that does not end within a UTF-8 character.
 */
bh_bytes bh__cut(bh_bytes text, size_t most);

#endif
