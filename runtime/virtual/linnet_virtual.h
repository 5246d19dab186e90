/* What the virtual libcuda.so.1 exports beside the CUDA Driver API; plain C, looked up by dlsym. */
#ifndef LINNET_VIRTUAL_H
#define LINNET_VIRTUAL_H

#ifdef __cplusplus
extern "C" {
#endif

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
