#include "rendezvous/base/contract.h"

#include <array>
#include <set>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace muster {
namespace {

constexpr std::array kCodes = {ExitCode::success,        ExitCode::usage,      ExitCode::internal,
                               ExitCode::environment,    ExitCode::rendezvous, ExitCode::unkillable,
                               ExitCode::cannot_execute, ExitCode::not_found};

// 128 + n means that signal n ended a worker; 126 and 127 mean what they mean in a shell.
TEST(Contract, ExitCodesDifferAndStayBelowThoseOfSignals) {
  std::set<int> numbers;
  for (const ExitCode code : kCodes)
    numbers.insert(static_cast<int>(code));
  EXPECT_EQ(numbers, (std::set<int>{0, 2, 120, 121, 122, 123, 126, 127}));
}

// torch.distributed's env:// and users' programs read these variables of torchrun's agent.
TEST(Contract, WorkersGetTheVariablesThatTorchrunSets) {
  EXPECT_EQ((std::vector<std::string_view>{
                env::kLocalRank, env::kRank, env::kGroupRank, env::kRoleRank, env::kRoleName,
                env::kLocalWorldSize, env::kWorldSize, env::kGroupWorldSize, env::kRoleWorldSize,
                env::kMasterAddr, env::kMasterPort, env::kRestartCount, env::kMaxRestarts,
                env::kRunId, env::kUseAgentStore, env::kNcclAsyncErrorHandling, env::kErrorFile}),
            (std::vector<std::string_view>{
                "LOCAL_RANK", "RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "LOCAL_WORLD_SIZE",
                "WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID",
                "TORCHELASTIC_USE_AGENT_STORE", "TORCH_NCCL_ASYNC_ERROR_HANDLING",
                "TORCHELASTIC_ERROR_FILE"}));
  EXPECT_EQ(kC10dPort, 29400);
  EXPECT_EQ(kStaticPort, 29500);
}

}  // namespace
}  // namespace muster
