// The whole library for C++.
//
//   #include <muster/distributed.h>
//
//   muster::init_process_group();
//   std::vector<float> gradients(1000, 1.0F);
//   muster::world().all_reduce(gradients, muster::ReduceOp::average);
//   muster::destroy_process_group();
//
// init.h joins the job; process_group.h has the operations; spawn.h starts ranks from inside one
// program; training.h, sampler.h, gradient_buckets.h and checkpoint.h support training loops;
// section.h tells the launcher what a rank is doing. muster.h is for other languages.
#pragma once

#include "muster/checkpoint.h"
#include "muster/error.h"
#include "muster/gradient_buckets.h"
#include "muster/init.h"
#include "muster/process_group.h"
#include "muster/sampler.h"
#include "muster/section.h"
#include "muster/spawn.h"
#include "muster/training.h"
#include "muster/types.h"
#include "muster/work.h"
