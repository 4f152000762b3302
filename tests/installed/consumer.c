#include <backhop.h>
#include <stdio.h>

int main(void)
{
    bh_worker *worker;
    printf("backhop %s, librabbitmq %s, %s\n", bh_version(), bh_worker_librabbitmq_loaded().data,
           bh_status_name(bh_worker_new(&worker, NULL, NULL)).data);
    return 0;
}
