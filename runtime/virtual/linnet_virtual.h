/* What the virtual libcuda.so.1 exports beside the CUDA Driver API; plain C, looked up by dlsym. */
#ifndef LINNET_VIRTUAL_H
#define LINNET_VIRTUAL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is known of one launch, the indices of linnet_virtual_launch::counts. Instructions are those
   of a warp. Everything is counted but the last, which is modelled. */
enum linnet_virtual_count {
  LINNET_COUNT_BLOCKS,
  LINNET_COUNT_INSTRUCTIONS, /* all of them */
  LINNET_COUNT_MOVES,        /* of them: register moves, which no machine code has */
  LINNET_COUNT_FLOAT,        /* of them: 32-bit and packed half arithmetic */
  LINNET_COUNT_INTEGER,      /* of them: integers, comparisons, conversions */
  LINNET_COUNT_MUFU,         /* of them: ex2, rcp, rsqrt, ... */
  LINNET_COUNT_MMA,          /* of them: matrix products */
  LINNET_COUNT_BARRIERS,     /* of them */
  LINNET_COUNT_FLOP,         /* operations of the matrix products */
  LINNET_COUNT_FLOP_AS_BF16, /* the same weighted by the tensor cores' time */
  LINNET_COUNT_LOAD_SECTORS, /* of 32 bytes asked of L2, asynchronous copies and atomics too */
  LINNET_COUNT_STORE_SECTORS,
  LINNET_COUNT_LOCAL_SECTORS,
  LINNET_COUNT_LOAD_MINIMUM, /* sectors that the bytes asked for fill */
  LINNET_COUNT_STORE_MINIMUM,
  LINNET_COUNT_WAVEFRONTS,        /* passes of shared memory */
  LINNET_COUNT_WAVEFRONT_MINIMUM, /* the same without bank conflicts */
  LINNET_COUNT_BYTES_READ,        /* of global memory, every byte once; 0 when checks are off */
  LINNET_COUNT_BYTES_WRITTEN,
  LINNET_COUNT_BLOCK_CLOCKS, /* modelled: clocks the first block takes by itself */
  LINNET_COUNTS
};

typedef struct linnet_virtual_launch {
  char kernel[128];
  uint32_t grid[3], block[3];
  uint32_t shared_bytes; /* static and dynamic */
  uint64_t counts[LINNET_COUNTS];
} linnet_virtual_launch;

/* Copies the last `capacity` launches (of at most 256 that are kept), oldest first; returns how
 * many. */
int linnet_virtual_launches(linnet_virtual_launch* out, int capacity);

/* The text behind the last call or launch that failed in this process, "" when none did. Returned
   strings live until the calling thread asks for the next one. */
const char* linnet_virtual_last_error(void);

/* A JSON list of everything the checks found: kind, kernel, file, line, thread, block, address. */
const char* linnet_virtual_findings(void);

/* A JSON list of the launches so far (the last 256) with their counts, oldest first. */
const char* linnet_virtual_counts(void);

/* Changes a setting of settings.h by name ("checks", "mma", "approx", "seed", "threads", ...);
   "arch" only before cuInit. 0 when it was understood, a CUresult otherwise. */
int linnet_virtual_set(const char* name, const char* value);

/* Forgets failures, findings and counts; memory and modules stay. */
void linnet_virtual_reset(void);

#ifdef __cplusplus
}
#endif

#endif /* LINNET_VIRTUAL_H */
