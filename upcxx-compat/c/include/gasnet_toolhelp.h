/* The functions of the GASNet tools. Include gasnet_tools.h instead of this file.
 *
 * All of them may be called by any thread, before gasnet_init and without it. Those that allocate return memory of
 * malloc.
 */
#ifndef _GASNET_TOOLHELP_H
#define _GASNET_TOOLHELP_H

#if !defined(_IN_GASNET_TOOLS_H)
    #error "include gasnet_tools.h"
#endif

GASNETT_BEGIN_EXTERNC

/* ---- Timers ---- */

/* Monotonic time of this process, to be added, subtracted and compared; a tick is a nanosecond here. */
typedef uint64_t gasnett_tick_t;
#define GASNETT_TICK_MIN ((gasnett_tick_t)0)
#define GASNETT_TICK_MAX (~(gasnett_tick_t)0)
extern gasnett_tick_t gasnett_ticks_now(void);
#define gasnett_ticks_to_ns(ticks) ((uint64_t)(ticks))
#define gasnett_ticks_to_us(ticks) ((uint64_t)(ticks) / 1000)
/* The smallest step of the clock that is seen, and what reading it takes, in microseconds; measured by each call. */
extern double gasnett_tick_granularityus(void);
extern double gasnett_tick_overheadus(void);
#define gasnett_timer_granularityus() gasnett_tick_granularityus()
#define gasnett_timer_overheadus() gasnett_tick_overheadus()
/* Microseconds since 1970, of the wall clock. */
extern uint64_t gasnett_gettimeofday_us(void);
#define GASNETT_TIMER_CONFIG timers_native
/* Sleeps for so many nanoseconds, whatever signals arrive. Returns 0. */
extern int gasnett_nsleep(uint64_t _nanoseconds);

/* Gives the processor away. */
extern int gasnett_sched_yield(void);
/* Says to the processor that this is a loop that waits. */
#if defined(__x86_64__)
    #define gasnett_spinloop_hint() __builtin_ia32_pause()
#elif defined(__aarch64__)
    #define gasnett_spinloop_hint() __asm__ __volatile__("yield" : : : "memory")
#else
    #define gasnett_spinloop_hint() gasnett_compiler_fence()
#endif

#if !GASNETT_LITE_MODE

/* ---- Numbers ---- */

/* Writes a number, with a unit that divides it (B, KB, MB, GB, TB) if it is a size of memory. Returns `_buffer`. */
extern char *gasnett_format_number(int64_t _number, char *_buffer, size_t _bytes, int _is_memory_size);
/* Reads a number, decimal or hexadecimal (0x). With a `_unit` other than 0 it is a size of memory: it may have a
 * fraction and a suffix as above, and counts in `_unit` bytes if there is none. Ends the process if it is not one. */
extern int64_t gasnett_parse_int(const char *_text, uint64_t _unit);

/* ---- Environment of this process ---- */

extern void gasnett_setenv(const char *_key, const char *_value);
extern void gasnett_unsetenv(const char *_key);
extern char *gasnett_getenv(const char *_key);
/* The value, or the default; told once to a user who has set GASNET_VERBOSEENV. A yes or no is Y, YES, 1, N, NO or 0 in
 * any case; the unit is that of gasnett_parse_int. What cannot be read ends the process. */
extern char *gasnett_getenv_withdefault(const char *_key, const char *_default);
extern int gasnett_getenv_yesno_withdefault(const char *_key, int _default);
extern int64_t gasnett_getenv_int_withdefault(const char *_key, int64_t _default, uint64_t _unit);
extern double gasnett_getenv_dbl_withdefault(const char *_key, double _default);
/* Whether the user wants to be told (GASNET_VERBOSEENV), and telling: nothing happens if not. */
extern int gasnett_verboseenv(void);
extern void gasnett_envstr_display(const char *_key, const char *_value, int _is_default);
extern void gasnett_envint_display(const char *_key, int64_t _value, int _is_default, int _is_memory_size);
extern void gasnett_envdbl_display(const char *_key, double _value, int _is_default);

/* ---- This machine ---- */

/* Processors that this machine has online; 0 if it cannot be known. */
extern int gasnett_cpu_count(void);
/* Binds the calling thread to processor `_rank` modulo their number. It stays unbound if that is not allowed. */
extern void gasnett_set_affinity(int _rank);
/* Bytes of memory; if they cannot be known, 0, or the end of the process. */
extern uint64_t gasnett_getPhysMemSz(int _failure_is_fatal);
extern const char *gasnett_gethostname(void);
extern int gasnett_isLittleEndian(void);
/* Raises the soft limits of this process to the hard ones: CPU time, file and data size, stack, memory, files. */
extern void gasnett_maximize_rlimits(void);
/* One of them (an RLIMIT_ constant and its name); returns whether it is at its most. */
extern int gasnett_maximize_rlimit(int _resource, const char *_name);

/* ---- Memory ---- */

/* A checksum, the same on every node; not against an adversary. */
extern uint64_t gasnett_checksum(const void *_bytes, int _count);
/* Zero bytes in a region, in a number, in a region that is copied meanwhile. */
extern size_t gasnett_count0s(const void *_source, size_t _bytes);
extern size_t gasnett_count0s_copy(void *GASNETT_RESTRICT _to, const void *GASNETT_RESTRICT _from, size_t _bytes);
extern int gasnett_count0s_uint32_t(uint32_t _number) GASNETT_CONST;
extern int gasnett_count0s_uint64_t(uint64_t _number) GASNETT_CONST;
#define gasnett_count0s_uintptr_t(number) gasnett_count0s_uint64_t((uint64_t)(number))
/* Memory at a multiple of `_alignment`, a power of two. Ends the process if there is none. */
extern void *gasnett_malloc_aligned(size_t _alignment, size_t _bytes) GASNETT_MALLOC;
extern void gasnett_free_aligned(void *_memory);
/* Fresh zeroed pages. Ends the process if there are none. */
extern void *gasnett_mmap(uintptr_t _bytes);

/* ---- This process: errors, signals, streams ---- */

/* "*** FATAL ERROR: ..." on the standard error, a backtrace if GASNET_BACKTRACE says so, and abort(). */
GASNETT_FORMAT_PRINTF(gasnett_fatalerror, 1, 2,
                      extern void gasnett_fatalerror(const char *_format, ...) GASNETT_NORETURN);
/* Ends the process with all its threads at once, without atexit functions. */
extern void gasnett_killmyprocess(int _exit_code) GASNETT_NORETURN;
/* Function, file and line of here. */
extern char *gasnett_build_loc_str(const char *_function, const char *_file, int _line);
#define gasnett_current_loc gasnett_build_loc_str(GASNETT_CURRENT_FUNCTION, __FILE__, __LINE__)

typedef void (*gasnett_sighandlerfn_t)(int);
/* Sets the handler of a signal and returns the one before. Ends the process if there is no such signal. */
extern gasnett_sighandlerfn_t gasnett_reghandler(int _signal, gasnett_sighandlerfn_t _handler);
/* "SIGSEGV"; NULL if there is no such signal. */
extern const char *gasnett_signame_fromval(int _signal);

extern void gasnett_flush_streams(void);
/* Closes standard input, output and error. */
extern void gasnett_close_streams(void);
/* What of this library's configuration costs performance; empty. */
extern const char *gasnett_performance_warning_str(void);

/* ---- Backtraces and debuggers ---- */

/* A client's own way to write a backtrace: its name in capitals, a function that returns 0 if it wrote one, and whether
 * it can tell threads apart. A client defines gasnett_backtrace_user to have it tried where USER stands in the list
 * GASNET_BACKTRACE_TYPE (which is USER,EXECINFO,GDB otherwise). */
typedef struct {
    const char *name;
    int (*fnp)(int _descriptor);
    int threadsupport;
} gasnett_backtrace_type_t;
extern gasnett_backtrace_type_t gasnett_backtrace_user;
/* Names this program's file, for debuggers; to be called early. Reads GASNET_BACKTRACE and GASNET_FREEZE_ON_ERROR. */
extern void gasnett_backtrace_init(const char *_program);
/* Writes a backtrace of this thread to a file descriptor. Returns 0 if one was written. */
extern int gasnett_print_backtrace(int _descriptor);
/* The same if GASNET_BACKTRACE is set; what fatal errors call. Clients may put another function here. */
extern int (*gasnett_print_backtrace_ifenabled)(int _descriptor);
/* Waits until a debugger (or anybody) sets *flag to 0; says so on the standard error. */
extern void gasnett_freezeForDebuggerNow(volatile int *_flag, const char *_name);
/* The same if GASNET_FREEZE_ON_ERROR is set. */
extern void gasnett_freezeForDebuggerErr(void);
extern volatile int gasnet_frozen;

#endif /* !GASNETT_LITE_MODE */

GASNETT_END_EXTERNC
#endif
