/* Version: of the library, and what its headers need from the compiler. */
#ifndef BACKHOP_VERSION_H
#define BACKHOP_VERSION_H

#ifdef __cplusplus
#define BH_BEGIN_DECLS extern "C" {
#define BH_END_DECLS }
#else
#define BH_BEGIN_DECLS
#define BH_END_DECLS
#endif

/* The library is built with hidden visibility; this makes a function part of its interface. */
#ifndef BH_API /* what compiles the core into itself defines it as nothing */
#define BH_API __attribute__((visibility("default")))
#endif

BH_BEGIN_DECLS

/* The version of the library that runs, as "0.1.0": a static C string. */
BH_API const char *bh_version(void);

BH_END_DECLS

#endif
