/* What a start costs without vgas: PMIx_Init, a fence, PMIx_Finalize. */
#include <pmix.h>

int main(void) {
    pmix_proc_t me;
    if (PMIx_Init(&me, NULL, 0) != PMIX_SUCCESS) return 1;
    if (PMIx_Fence(NULL, 0, NULL, 0) != PMIX_SUCCESS) return 1;
    return PMIx_Finalize(NULL, 0) != PMIX_SUCCESS;
}
