#include <backhop.h>
#include <stdio.h>

int main(void)
{
    bh_worker *worker;
    bh_librabbitmq librabbitmq;

    bh_worker_librabbitmq(&librabbitmq);
    printf("backhop %s, librabbitmq %s, %s\n", bh_version(), librabbitmq.loaded.data,
           bh_status_name(bh_worker_new(&worker, NULL, NULL)).data);
    return 0;
}
