/* Suites of the wire layer: what main.c runs. Those of the second group need librabbitmq. */
#ifndef BACKHOP_TESTS_WIRE_SUITES_H
#define BACKHOP_TESTS_WIRE_SUITES_H

#include <check.h>

Suite *suite_buffer(void);
Suite *suite_clock(void);
Suite *suite_report(void);
Suite *suite_uri(void);
Suite *suite_compatibility(void);
Suite *suite_content(void);

Suite *suite_link(void);
Suite *suite_login(void);
Suite *suite_assembler(void);
Suite *suite_socket(void);

#endif
