# Tests of the worker library that need no launcher. With objects, not libmuster.so: the tests look inside.
set(WORKER muster_worker_objects)
muster_test(worker_group_front_tests unit
  SOURCES unit/worker_group_checks_test.cc unit/worker_group_create_test.cc unit/worker_group_departures_test.cc
          unit/worker_group_failure_test.cc unit/worker_group_leaving_test.cc unit/worker_group_mix_test.cc
          unit/worker_group_order_test.cc unit/worker_group_p2p_test.cc unit/worker_inquiry_test.cc
          unit/worker_monitored_barrier_test.cc unit/worker_process_group_test.cc unit/worker_purpose_test.cc
          unit/worker_work_test.cc
  LIBRARIES ${WORKER})
muster_test(worker_cpu_tests unit
  SOURCES unit/worker_cpu_backend_failure_test.cc unit/worker_cpu_backend_test.cc unit/worker_exchange_test.cc
          unit/worker_exchange_values_test.cc
          unit/worker_flat_test.cc unit/worker_side_copies_test.cc unit/worker_p2p_engine_test.cc unit/worker_p2p_test.cc
          unit/worker_quiet_thread_test.cc unit/worker_segment_meeting_test.cc unit/worker_segment_test.cc
          unit/worker_shm_copy_test.cc unit/worker_shm_failure_test.cc unit/worker_shm_random_test.cc
          unit/worker_shm_memory_test.cc unit/worker_shm_test.cc unit/worker_tcp_test.cc unit/worker_waiting_cores_test.cc unit/worker_waiting_test.cc
  LIBRARIES ${WORKER})
muster_test(worker_watch_tests unit
  SOURCES unit/worker_stop_signal_test.cc unit/worker_watch_loop_test.cc unit/worker_watch_test.cc
          unit/worker_watch_tree_test.cc
          unit/worker_watch_wire_test.cc
  LIBRARIES ${WORKER})
muster_test(worker_training_tests unit
  SOURCES unit/worker_buckets_test.cc unit/worker_checkpoint_test.cc unit/worker_training_test.cc
  LIBRARIES ${WORKER})
if(MUSTER_SANITIZE STREQUAL "thread")
  return()
endif()

muster_test(worker_unit_tests unit
  SOURCES unit/worker_atomic_file_test.cc unit/worker_bucket_plan_test.cc unit/worker_c_abi_test.cc
          unit/worker_camps_test.cc unit/worker_env_test.cc
          unit/worker_failure_notice_test.cc unit/worker_failure_reports_test.cc unit/worker_fields_test.cc unit/worker_fork_guard_test.cc
          unit/worker_file_meeting_point_test.cc unit/worker_init_test.cc unit/worker_own_address_test.cc unit/worker_reduce_kernels_test.cc
          unit/worker_sampler_test.cc unit/worker_spawn_test.cc unit/worker_types_test.cc
          matrix/layout_test.cc matrix/pairwise_test.cc
          matrix/case.cc matrix/layout.cc matrix/pairwise.cc matrix/values.cc matrix/block.cc
  LIBRARIES ${WORKER})
muster_test(worker_gloo_tests unit SOURCES unit/gloo_leaks.cc unit/worker_gloo_test.cc LIBRARIES ${WORKER})

# A driver and an NCCL that compute in host memory (no GPU is needed anywhere here).
add_library(fake_gpu SHARED fakes/fake_cuda.cc fakes/fake_nccl.cc)
target_link_libraries(fake_gpu PRIVATE muster_worker_objects)
# Else it keeps all of the rendezvous, whose thread-local buffers are too large for a library that is opened late.
target_link_options(fake_gpu PRIVATE -Wl,--exclude-libs,ALL)
muster_test(worker_nccl_tests unit EACH_TEST SOURCES unit/worker_nccl_backend_test.cc unit/worker_nccl_core_test.cc unit/worker_nccl_library_test.cc
  LIBRARIES ${WORKER})
target_compile_definitions(worker_nccl_tests PRIVATE MUSTER_FAKE_GPU="$<TARGET_FILE:fake_gpu>")
add_dependencies(worker_nccl_tests fake_gpu)

# The matrix and the scenes of groups: programs linked to the shared library as a user's are, under the sanitizers to the
# objects.
set(MATRIX_SOURCES matrix/worker_matrix.cc matrix/block.cc matrix/case.cc matrix/cuda_block.cc matrix/layout.cc
    matrix/pairwise.cc matrix/perform.cc matrix/values.cc)
if(MUSTER_SANITIZE)
  add_executable(worker_matrix ${MATRIX_SOURCES} unit/gloo_leaks.cc)
  add_executable(worker_scenes matrix/worker_scenes.cc)
  target_link_libraries(worker_matrix PRIVATE ${WORKER} ${CMAKE_DL_LIBS})
  target_link_libraries(worker_scenes PRIVATE ${WORKER})
  add_test(NAME ${PREFIX}.live.worker.matrix
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/live/worker_matrix_test.py OneNode Gloo Groups)
  set(MATRIX_ENVIRONMENT "MUSTER=$<TARGET_FILE:muster>" "MUSTER_WORKER_MATRIX=$<TARGET_FILE:worker_matrix>"
      "MUSTER_WORKER_SCENES=$<TARGET_FILE:worker_scenes>")
  set_tests_properties(${PREFIX}.live.worker.matrix PROPERTIES LABELS live TIMEOUT 900 SKIP_RETURN_CODE 77
                       ENVIRONMENT "${MATRIX_ENVIRONMENT}")
endif()

# The worker library's benchmark: its ranks on the shared library, as a user's program.
if(NOT MUSTER_SANITIZE)
  add_executable(worker_bench bench/worker_bench.cc bench/worker_bench_rank.cc)
  target_link_libraries(worker_bench PRIVATE muster_flags muster::worker)
endif()
