#include "ptx/instruction_forms.h"

// Value lists that many rows share.
#define INT "u16,u32,u64,s16,s32,s64"
#define INT2 INT ",u16x2,s16x2"
#define BITS "b16,b32,b64"
#define RND "rn,rz,rm,rp"
#define CMP "eq,ne,lt,le,gt,ge,lo,ls,hi,hs,equ,neu,ltu,leu,gtu,geu,num,nan"
#define ANY "b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64"
#define MEM "b8,b16,b32,b64,b128,u8,u16,u32,u64,s8,s16,s32,s64,f16,bf16,f16x2,bf16x2,f32,f64"
#define WGMMA_K16                                                                            \
  "m64n8k16,m64n16k16,m64n24k16,m64n32k16,m64n40k16,m64n48k16,m64n56k16,m64n64k16,"          \
  "m64n72k16,m64n80k16,m64n88k16,m64n96k16,m64n104k16,m64n112k16,m64n120k16,m64n128k16,"     \
  "m64n136k16,m64n144k16,m64n152k16,m64n160k16,m64n168k16,m64n176k16,m64n184k16,m64n192k16," \
  "m64n200k16,m64n208k16,m64n216k16,m64n224k16,m64n232k16,m64n240k16,m64n248k16,m64n256k16"
#define WGMMA_K8                                                                            \
  "m64n8k8,m64n16k8,m64n24k8,m64n32k8,m64n40k8,m64n48k8,m64n56k8,m64n64k8,m64n72k8,"        \
  "m64n80k8,m64n88k8,m64n96k8,m64n104k8,m64n112k8,m64n120k8,m64n128k8,m64n136k8,m64n144k8," \
  "m64n152k8,m64n160k8,m64n168k8,m64n176k8,m64n184k8,m64n192k8,m64n200k8,m64n208k8,"        \
  "m64n216k8,m64n224k8,m64n232k8,m64n240k8,m64n248k8,m64n256k8"
#define SCOPE "cta,cluster,gpu,sys"
#define SHARED "shared,shared::cta,shared::cluster"
#define EVICT                                                                                \
  "l1?=L1::evict_normal,L1::evict_unchanged,L1::evict_first,L1::evict_last,L1::no_allocate " \
  "l2?=L2::evict_normal,L2::evict_first,L2::evict_last hint?=L2::cache_hint "                \
  "fetch?=L2::64B,L2::128B,L2::256B "
#define CVT "u8,u16,u32,u64,s8,s16,s32,s64,f16,bf16,f32,f64,tf32,f16x2,bf16x2,e4m3x2,e5m2x2"

namespace linnet::vgpu {
namespace {

constexpr FormText kForms[] = {
    // Integer arithmetic.
    {"add", "type=" INT2, 3, 3},
    {"add", "sat type=s32", 3, 3},
    {"add", "cc type=u32,s32,u64,s64", 3, 3},
    {"addc", "cc? type=u32,s32,u64,s64", 3, 3},
    {"sub", "type=" INT2, 3, 3},
    {"sub", "sat type=s32", 3, 3},
    {"sub", "cc type=u32,s32,u64,s64", 3, 3},
    {"subc", "cc? type=u32,s32,u64,s64", 3, 3},
    {"mul", "mode=lo,hi type=" INT, 3, 3},
    {"mul", "mode=wide type=u16,u32,s16,s32", 3, 3},
    {"mad", "mode=lo,hi type=" INT, 4, 4},
    {"mad", "mode=lo,hi cc type=u32,s32,u64,s64", 4, 4},
    {"mad", "mode=wide type=u16,u32,s16,s32", 4, 4},
    {"mad", "mode=hi sat type=s32", 4, 4},
    {"madc", "mode=lo,hi cc? type=u32,s32,u64,s64", 4, 4},
    {"mul24", "mode=lo,hi type=u32,s32", 3, 3},
    {"mad24", "mode=lo,hi type=u32,s32", 4, 4},
    {"sad", "type=" INT, 4, 4},
    {"div", "type=" INT, 3, 3},
    {"rem", "type=" INT, 3, 3},
    {"abs", "type=s16,s32,s64", 2, 2},
    {"neg", "type=s16,s32,s64", 2, 2},
    {"min", "type=" INT2, 3, 3},
    {"min", "relu type=s16x2,s32", 3, 3},
    {"max", "type=" INT2, 3, 3},
    {"max", "relu type=s16x2,s32", 3, 3},
    {"popc", "type=b32,b64", 2, 2},
    {"clz", "type=b32,b64", 2, 2},
    {"bfind", "shiftamt? type=u32,u64,s32,s64", 2, 2},
    {"fns", "type=b32", 4, 4},
    {"brev", "type=b32,b64", 2, 2},
    {"bfe", "type=u32,u64,s32,s64", 4, 4},
    {"bfi", "type=b32,b64", 5, 5},
    {"bmsk", "mode=clamp,wrap type=b32", 3, 3},
    {"szext", "mode=clamp,wrap type=u32,s32", 3, 3},
    {"dp4a", "atype=u32,s32 btype=u32,s32", 4, 4},
    {"dp2a", "mode=lo,hi atype=u32,s32 btype=u32,s32", 4, 4},

    // Floating-point arithmetic.
    {"add", "rnd?=" RND " ftz? sat? type=f32", 3, 3},
    {"add", "rnd?=" RND " type=f64", 3, 3},
    {"add", "rnd?=rn ftz? sat? type=f16,f16x2", 3, 3},
    {"add", "rnd?=rn type=bf16,bf16x2", 3, 3},
    {"sub", "rnd?=" RND " ftz? sat? type=f32", 3, 3},
    {"sub", "rnd?=" RND " type=f64", 3, 3},
    {"sub", "rnd?=rn ftz? sat? type=f16,f16x2", 3, 3},
    {"sub", "rnd?=rn type=bf16,bf16x2", 3, 3},
    {"mul", "rnd?=" RND " ftz? sat? type=f32", 3, 3},
    {"mul", "rnd?=" RND " type=f64", 3, 3},
    {"mul", "rnd?=rn ftz? sat? type=f16,f16x2", 3, 3},
    {"mul", "rnd?=rn type=bf16,bf16x2", 3, 3},
    {"fma", "rnd=" RND " ftz? sat? type=f32", 4, 4},
    {"fma", "rnd=" RND " type=f64", 4, 4},
    {"fma", "rnd=rn ftz? sat? relu? type=f16,f16x2", 4, 4},
    {"fma", "rnd=rn relu? type=bf16,bf16x2", 4, 4},
    {"mad", "rnd=" RND " ftz? sat? type=f32", 4, 4},
    {"mad", "rnd=" RND " type=f64", 4, 4},
    {"div", "mode=approx,full ftz? type=f32", 3, 3},
    {"div", "rnd=" RND " ftz? type=f32", 3, 3},
    {"div", "rnd=" RND " type=f64", 3, 3},
    {"abs", "ftz? type=f32,f16,f16x2", 2, 2},
    {"abs", "type=f64,bf16,bf16x2", 2, 2},
    {"neg", "ftz? type=f32,f16,f16x2", 2, 2},
    {"neg", "type=f64,bf16,bf16x2", 2, 2},
    {"min", "ftz? nan?=NaN xorsign? abs? type=f32,f16,f16x2,bf16,bf16x2", 3, 3},
    {"min", "type=f64", 3, 3},
    {"max", "ftz? nan?=NaN xorsign? abs? type=f32,f16,f16x2,bf16,bf16x2", 3, 3},
    {"max", "type=f64", 3, 3},
    {"rcp", "approx ftz? type=f32", 2, 2},
    {"rcp", "rnd=" RND " ftz? type=f32", 2, 2},
    {"rcp", "rnd=" RND " type=f64", 2, 2},
    {"rcp", "approx ftz type=f64", 2, 2},
    {"sqrt", "approx ftz? type=f32", 2, 2},
    {"sqrt", "rnd=" RND " ftz? type=f32", 2, 2},
    {"sqrt", "rnd=" RND " type=f64", 2, 2},
    {"rsqrt", "approx ftz? type=f32,f64", 2, 2},
    {"sin", "approx ftz? type=f32", 2, 2},
    {"cos", "approx ftz? type=f32", 2, 2},
    {"lg2", "approx ftz? type=f32", 2, 2},
    {"ex2", "approx ftz? type=f32,f16,f16x2,bf16,bf16x2", 2, 2},
    {"tanh", "approx type=f32,f16,f16x2,bf16,bf16x2", 2, 2},
    {"testp", "op=finite,infinite,number,notanumber,normal,subnormal type=f32,f64", 2, 2},
    {"copysign", "type=f32,f64", 3, 3},

    // Comparison and selection.
    {"setp", "cmp=" CMP " bool?=and,or,xor ftz? type=" ANY ",f16,f16x2,bf16,bf16x2", 3, 4},
    {"set", "cmp=" CMP " bool?=and,or,xor ftz? dtype=u32,s32,f32,f16,bf16 type=" ANY ",f16,bf16", 3,
     4},
    {"set", "cmp=" CMP " bool?=and,or,xor ftz? dtype=f16x2,bf16x2 type=f16x2,bf16x2", 3, 4},
    {"selp", "type=" ANY, 4, 4},
    {"slct", "ftz? dtype=" ANY " stype=s32,f32", 4, 4},

    // Bits and moves.
    {"and", "type=pred," BITS, 3, 3},
    {"or", "type=pred," BITS, 3, 3},
    {"xor", "type=pred," BITS, 3, 3},
    {"not", "type=pred," BITS, 2, 2},
    {"cnot", "type=" BITS, 2, 2},
    {"lop3", "type=b32", 5, 5},
    {"lop3", "bool=or,and type=b32", 6, 6},
    {"shl", "type=" BITS, 3, 3},
    {"shr", "type=" BITS "," INT, 3, 3},
    {"shf", "dir=l,r mode=clamp,wrap type=b32", 4, 4},
    {"prmt", "type=b32 mode?=f4e,b4e,rc8,ecl,ecr,rc16", 4, 4},
    {"mov", "type=pred,b128,f16,bf16," ANY, 2, 2},
    {"cvt",
     "rnd?=rn,rz,rm,rp,rna,rni,rzi,rmi,rpi relu? ftz? sat? satfinite? relu? dtype=" CVT
     " stype=" CVT,
     2, 3},
    {"cvt", "pack sat dtype=u16,s16,u8,s8 itype=s32 ctype?=b32", 3, 4},
    {"cvta", "to? space=global,local,const,param," SHARED " type=u32,u64", 2, 2},
    {"isspacep", "space=global,local,const,param,param::entry," SHARED, 2, 2},
    {"mapa", "space?=shared::cluster type=u32,u64", 3, 3},
    {"getctarank", "space?=shared::cluster type=u32,u64", 2, 2},

    // Memory.
    {"ld",
     "sem?=weak,volatile,relaxed,acquire,mmio scope?=" SCOPE
     " space?=const,global,local,param,param::entry,param::func," SHARED
     " cop?=ca,cg,cs,lu,cv nc? " EVICT "vec?=v2,v4,v8 type=" MEM,
     2, 3},
    {"ldu", "space?=global vec?=v2,v4 type=" MEM, 2, 2},
    {"st",
     "sem?=weak,volatile,relaxed,release,mmio scope?=" SCOPE
     " space?=global,local,param,param::func," SHARED " cop?=wb,cg,cs,wt " EVICT
     "vec?=v2,v4,v8 type=" MEM,
     2, 3},
    {"atom",
     "sem?=relaxed,acquire,release,acq_rel scope?=" SCOPE " space?=global," SHARED
     " op=and,or,xor,cas,exch,add,inc,dec,min,max noftz? hint?=L2::cache_hint "
     "type=b16,b32,b64,b128,u32,u64,s32,s64,f16,f16x2,bf16,bf16x2,f32,f64",
     3, 5},
    {"red",
     "sem?=relaxed,release scope?=" SCOPE " space?=global," SHARED
     " op=and,or,xor,add,inc,dec,min,max noftz? hint?=L2::cache_hint vec?=v2,v4,v8 "
     "type=b32,b64,u32,u64,s32,s64,f16,f16x2,bf16,bf16x2,f32,f64",
     2, 3},
    // libcu++ writes the operation in front of its semantics.
    {"atom",
     "op=and,or,xor,cas,exch,add,inc,dec,min,max sem=relaxed,acquire,release,acq_rel scope?=" SCOPE
     " space?=global," SHARED " type=b16,b32,b64,u32,u64,s32,s64,f32,f64",
     3, 4},
    {"red",
     "op=and,or,xor,add,inc,dec,min,max sem=relaxed,release scope?=" SCOPE " space?=global," SHARED
     " type=b32,b64,u32,u64,s32,s64,f32,f64",
     2, 2},
    {"prefetch", "space?=global,local level=L1,L2,L2::evict_last,L2::evict_normal", 1, 1},
    {"prefetch", "space?=const,param what=tensormap", 1, 1},
    {"prefetchu", "level=L1", 1, 1},
    {"createpolicy",
     "kind=fractional primary=L2::evict_last,L2::evict_normal,L2::evict_first,L2::evict_unchanged "
     "secondary?=L2::evict_first,L2::evict_unchanged type=b64",
     1, 2},
    {"membar", "level=cta,gl,sys", 0, 0},
    {"fence", "sem?=sc,acq_rel,acquire,release scope=" SCOPE, 0, 0},
    {"fence", "proxy kind=alias,async", 0, 0},
    {"fence", "proxy kind=async space=global," SHARED, 0, 0},
    {"fence", "kind=mbarrier_init sem=release scope=cluster", 0, 0},

    // Asynchronous copies and their barriers.
    {"cp",
     "async cache=ca,cg space=shared,shared::cta src=global hint?=L2::cache_hint "
     "fetch?=L2::64B,L2::128B,L2::256B",
     3, 5},
    {"cp", "async op=commit_group", 0, 0},
    {"cp", "async op=wait_group", 1, 1},
    {"cp", "async op=wait_all", 0, 0},
    {"cp", "async op=mbarrier arrive noinc? space?=shared,shared::cta type=b64", 1, 1},
    {"cp",
     "async bulk dst=shared::cta,shared::cluster src=global,shared::cta "
     "done=mbarrier::complete_tx::bytes hint?=L2::cache_hint",
     4, 5},
    {"cp", "async bulk dst=global src=shared::cta done=bulk_group hint?=L2::cache_hint", 3, 4},
    {"cp",
     "async bulk tensor dim=1d,2d,3d,4d,5d dst=shared::cta,shared::cluster src=global mode?=tile "
     "done=mbarrier::complete_tx::bytes multicast?=multicast::cluster hint?=L2::cache_hint",
     3, 5},
    {"cp",
     "async bulk tensor dim=1d,2d,3d,4d,5d dst=global src=shared::cta mode?=tile done=bulk_group "
     "hint?=L2::cache_hint",
     2, 3},
    {"cp",
     "async bulk prefetch tensor dim=1d,2d,3d,4d,5d level=L2 src=global mode?=tile "
     "hint?=L2::cache_hint",
     1, 2},
    {"cp", "async bulk prefetch level=L2 src=global hint?=L2::cache_hint", 2, 3},
    {"cp", "async bulk op=commit_group", 0, 0},
    {"cp", "async bulk op=wait_group read?", 1, 1},
    {"mbarrier", "op=init space?=shared,shared::cta type=b64", 2, 2},
    {"mbarrier", "op=inval space?=shared,shared::cta type=b64", 1, 1},
    {"mbarrier",
     "op=arrive,arrive_drop variant?=expect_tx,noComplete sem?=release,relaxed scope?=cta,cluster "
     "space?=" SHARED " type=b64",
     1, 3},
    {"mbarrier",
     "op=expect_tx,complete_tx sem?=relaxed scope?=cta,cluster space?=" SHARED " type=b64", 2, 2},
    {"mbarrier",
     "op=test_wait,try_wait parity? sem?=acquire,relaxed scope?=cta,cluster "
     "space?=shared,shared::cta type=b64",
     3, 4},
    {"mbarrier", "op=pending_count type=b64", 2, 2},

    // Warps, barriers and control.
    {"bar", "warp op=sync", 1, 1},
    {"bar", "cta? op=sync", 1, 2},
    {"bar", "cta? op=arrive", 2, 2},
    {"bar", "cta? op=red red=popc type=u32", 3, 4},
    {"bar", "cta? op=red red=and,or type=pred", 3, 4},
    {"barrier", "cta? op=sync aligned?", 1, 2},
    {"barrier", "cta? op=arrive aligned?", 2, 2},
    {"barrier", "cta? op=red red=popc aligned? type=u32", 3, 4},
    {"barrier", "cta? op=red red=and,or aligned? type=pred", 3, 4},
    {"barrier", "cluster op=arrive sem?=release,relaxed aligned?", 0, 0},
    {"barrier", "cluster op=wait sem?=acquire aligned?", 0, 0},
    {"shfl", "sync mode=up,down,bfly,idx type=b32", 5, 5},
    {"vote", "sync mode=all,any,uni type=pred", 3, 3},
    {"vote", "sync mode=ballot type=b32", 3, 3},
    {"match", "mode=any,all sync type=b32,b64", 3, 3},
    {"activemask", "type=b32", 1, 1},
    {"redux", "sync op=add,min,max type=u32,s32", 3, 3},
    {"redux", "sync op=and,or,xor type=b32", 3, 3},
    {"elect", "sync", 2, 2},
    {"bra", "uni?", 1, 1},
    {"brx", "idx uni?", 2, 2},
    {"call", "uni?", 1, 4},
    {"ret", "uni?", 0, 0},
    {"exit", "", 0, 0},
    {"trap", "", 0, 0},
    {"brkpt", "", 0, 0},
    {"pmevent", "mask?", 1, 1},
    {"nanosleep", "type=u32", 1, 1},
    {"griddepcontrol", "op=launch_dependents,wait", 0, 0},
    {"setmaxnreg", "op=inc,dec sync aligned type=u32", 1, 1},

    // Matrix fragments.
    {"ldmatrix", "sync aligned shape=m8n8 num=x1,x2,x4 trans? space?=shared,shared::cta type=b16",
     2, 2},
    {"stmatrix", "sync aligned shape=m8n8 num=x1,x2,x4 trans? space?=shared,shared::cta type=b16",
     2, 2},
    {"movmatrix", "sync aligned shape=m8n8 trans type=b16", 2, 2},
    {"mma",
     "sync aligned shape=m16n8k8,m16n8k16 la=row lb=col dtype=f16,f32 atype=f16 btype=f16 "
     "ctype=f16,f32",
     4, 4},
    {"mma",
     "sync aligned shape=m16n8k8,m16n8k16 la=row lb=col dtype=f32 atype=bf16 btype=bf16 ctype=f32",
     4, 4},
    {"mma",
     "sync aligned shape=m16n8k4,m16n8k8 la=row lb=col dtype=f32 atype=tf32 btype=tf32 ctype=f32",
     4, 4},
    {"mma",
     "sync aligned shape=m16n8k32 la=row lb=col dtype=f32 atype=e4m3,e5m2 btype=e4m3,e5m2 "
     "ctype=f32",
     4, 4},
    {"mma",
     "sync aligned shape=m8n8k16,m16n8k16,m16n8k32 la=row lb=col satfinite? dtype=s32 atype=u8,s8 "
     "btype=u8,s8 ctype=s32",
     4, 4},
    {"mma",
     "sync aligned shape=m8n8k4,m16n8k4,m16n8k8,m16n8k16 la=row lb=col dtype=f64 atype=f64 "
     "btype=f64 ctype=f64",
     4, 4},
    {"wgmma", "op=fence,commit_group sync aligned", 0, 0},
    {"wgmma", "op=wait_group sync aligned", 1, 1},
    {"wgmma", "op=mma_async sync aligned shape=" WGMMA_K16 " dtype=f16,f32 atype=f16 btype=f16", 7,
     8},
    {"wgmma", "op=mma_async sync aligned shape=" WGMMA_K16 " dtype=f32 atype=bf16 btype=bf16", 7,
     8},
    {"wgmma", "op=mma_async sync aligned shape=" WGMMA_K8 " dtype=f32 atype=tf32 btype=tf32", 6, 6},
};

}  // namespace

std::span<const FormText> instruction_forms() { return kForms; }

}  // namespace linnet::vgpu
