/* GASNETT_LITE_MODE: timers and memory barriers, whatever the program does with threads, and no other name. */
#define GASNETT_LITE_MODE
#include <gasnet_tools.h>

#if defined(gasnett_mutex_lock) || defined(GASNETT_ATOMIC_REL) || defined(gasnett_getenv_withdefault)
    #error "more than the lite mode has"
#endif

int main(void) {
    gasnett_tick_t const start = gasnett_ticks_now();
    gasnett_local_mb();
    gasnett_local_wmb();
    gasnett_local_rmb();
    gasnett_weak_mb();
    gasnett_compiler_fence();
    return gasnett_ticks_to_ns(gasnett_ticks_now() - start) < 1000000000u && gasnett_tick_granularityus() > 0 &&
                          gasnett_tick_overheadus() > 0 && gasnett_gettimeofday_us() > 0 && sizeof(GASNETT_CONFIG_STRING) > 1
                      ? 0
                      : 1;
}
