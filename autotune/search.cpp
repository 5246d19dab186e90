#include "autotune/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "linnet/error.h"

namespace linnet::autotune {

namespace {

constexpr size_t kBatch = 6;       // schedules beside the default that take turns
constexpr int kFirstRuns = 7;      // of the survey; doubled in each round after it
constexpr size_t kFinalists = 12;  // at most, after the survey
constexpr int kRounds = 3;
constexpr int kMoreRounds = 6;  // of those that are left, while noise could decide between them
constexpr double kSurveyShare = 0.5;  // of the budget
constexpr double kNear = 1.2;         // a chunk that takes longer is not looked at closely
constexpr double kMostNoise = 0.1;    // beyond it a difference counts, noise or not

class Search {
 public:
  Search(const std::vector<Schedule>& space, Measurer& measurer, Journal* journal,
         const SearchOptions& options)
      : measurer_(measurer), journal_(journal), options_(options) {
    for (size_t i = 0; i < space.size(); ++i) trials_.push_back({space[i], i});
    scores_.resize(space.size());
  }

  SearchResult run() {
    bool complete = survey();
    complete &= finals();
    SearchResult result{.fallback = trials_[0], .complete = complete};
    if (trials_[0].runs == 0) throw Error("stopped before anything was measured");
    result.best = trials_[winner()];
    for (const Trial& trial : trials_)
      if (is_known(trial.rank)) result.trials.push_back(trial);
    options_.progress(1, "done");
    return result;
  }

 private:
  // The default and the plain chunks, then the neighbours of the best (one field apart) until none
  // is better. A model is also asked about those of other chunks that are not far behind, and no
  // more; where times are measured the rest follows, what has the better plain chunk first.
  bool survey() {
    std::vector<size_t> anchors, rest;
    for (const Trial& t : trials_) {
      Schedule plain = trials_[0].schedule;
      plain.chunk = t.schedule.chunk;
      (plain == t.schedule ? anchors : rest).push_back(t.rank);
    }
    // From a default that may not win there may be no way by single fields to what may.
    if (!options_.default_may_win && anchors.size() == 1 && !rest.empty())
      anchors.push_back(rest.front());
    if (!measure_all(anchors, kFirstRuns, kSurveyShare)) return false;
    if (!measurer_.is_noisy()) {
      const double near = kNear * trials_[ranked().front()].ratio;
      for (size_t a : anchors)
        if (trials_[a].runs > 0 && trials_[a].ratio <= near && !descend(trials_[a].schedule.chunk))
          return false;
      return descend();
    }
    if (!descend()) return false;
    auto anchor_of = [&](size_t i) {
      for (size_t a : anchors)
        if (trials_[a].schedule.chunk == trials_[i].schedule.chunk && trials_[a].runs > 0)
          return trials_[a].ratio;
      return std::numeric_limits<double>::infinity();
    };
    std::stable_sort(rest.begin(), rest.end(),
                     [&](size_t a, size_t b) { return anchor_of(a) < anchor_of(b); });
    std::erase_if(rest, [&](size_t i) { return is_known(i); });
    return measure_all(rest, kFirstRuns, kSurveyShare);
  }

  // From the best, or from the best of a chunk and within it.
  bool descend(std::optional<int64_t> chunk = std::nullopt) {
    for (;;) {
      // In noise what looks best is followed, tie or not: the finals decide.
      size_t from = measurer_.is_noisy() ? ranked().front() : winner(chunk);
      const Schedule& best = trials_[from].schedule;
      std::vector<size_t> neighbours;
      for (const Trial& t : trials_)
        if (!is_known(t.rank) && best.fields_apart(t.schedule) == 1 &&
            (!chunk || t.schedule.chunk == *chunk))
          neighbours.push_back(t.rank);
      if (neighbours.empty()) return true;
      if (!measure_all(neighbours, kFirstRuns, kSurveyShare)) return false;
    }
  }

  // Rounds of the better half, with twice the runs, until one is clearly the best.
  bool finals() {
    std::vector<size_t> left = ranked();
    if (!measurer_.is_noisy()) return true;
    if (left.size() > finalists()) left.resize(finalists());
    // They are here because they were lucky, too: what got them here does not count any more.
    scores_.assign(scores_.size(), {});
    int runs = kFirstRuns;
    for (int round = 0; round < kRounds && left.size() > 1; ++round) {
      runs *= 2;
      if (!measure_all(left, runs, 1)) return false;
      std::stable_sort(left.begin(), left.end(), [&](size_t a, size_t b) { return better(a, b); });
      if (is_clear(left)) return true;
      // Who is no further from the best than noise is not sent away for it.
      size_t keep = std::max<size_t>(2, (left.size() + 1) / 2);
      auto near = [&](size_t i) {
        return trials_[i].ratio <= trials_[left[0]].ratio * (1 + trials_[i].noise);
      };
      while (keep < left.size() && near(left[keep])) ++keep;
      left.resize(keep);
    }
    return decide(left, runs);
  }

  // What is left takes turns again, without what is clearly worse, until noise is small beside a
  // tie: two searches then differ by little more than one.
  bool decide(std::vector<size_t> left, int runs) {
    for (int round = 0; round < kMoreRounds; ++round) {
      std::erase_if(left, [&](size_t i) { return !is_tied(i, left.front()); });
      double noise = trials_[0].noise;
      for (size_t i : left) noise = std::max(noise, trials_[i].noise);
      if (left.size() < 2 || noise < options_.tie / 3) return true;
      if (options_.budget_s > 0 && run_s_ > 0) {  // as many runs as there is time for
        double each_s = run_s_ * static_cast<double>(left.size() + 1);
        double most = (options_.budget_s - measurer_.clock_s()) / each_s;
        if (most < kFirstRuns) return true;
        runs = static_cast<int>(std::min<double>(runs, most));
      }
      if (!measure_all(left, runs, 1)) return false;
      std::stable_sort(left.begin(), left.end(), [&](size_t a, size_t b) { return better(a, b); });
    }
    return true;
  }

  // As many as there is time for: of a first round with twice a survey's runs, and of as much again
  // for the rounds of the better ones.
  size_t finalists() const {
    if (options_.budget_s <= 0 || run_s_ <= 0) return kFinalists;
    double left_s = options_.budget_s - measurer_.clock_s();
    double each_s = 4 * kFirstRuns * run_s_;
    return static_cast<size_t>(std::clamp(left_s / each_s, 2., static_cast<double>(kFinalists)));
  }

  bool is_known(size_t i) const { return trials_[i].runs > 0 || !trials_[i].error.empty(); }
  bool better(size_t a, size_t b) const {
    return std::pair(trials_[a].ratio, a) < std::pair(trials_[b].ratio, b);
  }
  std::vector<size_t> ranked() const {
    std::vector<size_t> order;
    for (const Trial& t : trials_)
      if (t.runs > 0) order.push_back(t.rank);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return better(a, b); });
    return order;
  }
  bool is_clear(const std::vector<size_t>& left) const {
    double margin = std::max(2 * noise_, options_.tie);
    return trials_[left[1]].ratio > trials_[left[0]].ratio * (1 + margin);
  }

  // Among those (of a chunk) that had as many runs as the best, the first of the space within a tie
  // of it.
  size_t winner(std::optional<int64_t> chunk = std::nullopt) const {
    std::vector<size_t> order = ranked();
    if (chunk) std::erase_if(order, [&](size_t i) { return trials_[i].schedule.chunk != *chunk; });
    if (!options_.default_may_win && order.size() > 1) std::erase(order, 0);
    int most = 0;
    for (size_t i : order) most = std::max(most, i == 0 ? 0 : trials_[i].runs);
    std::erase_if(order, [&](size_t i) { return i != 0 && trials_[i].runs < most; });
    const Trial& best = trials_[order.front()];
    size_t first = best.rank;
    for (size_t i : order)
      if (is_tied(i, best.rank)) first = std::min(first, i);
    return first;
  }

  bool is_tied(size_t i, size_t best) const {
    double noise = std::min(kMostNoise, 2 * std::max(trials_[best].noise, trials_[i].noise));
    return trials_[i].ratio <= trials_[best].ratio * (1 + std::max(options_.tie, noise));
  }

  bool measure_all(const std::vector<size_t>& which, int runs, double share) {
    for (size_t at = 0; at < which.size(); at += kBatch) {
      std::vector<size_t> batch = {0};
      for (size_t i = at; i < std::min(which.size(), at + kBatch); ++i)
        if (which[i] != 0) batch.push_back(which[i]);
      if (batch.size() == 1 && trials_[0].runs > 0) continue;
      if (!measure(batch, runs, share)) return false;
    }
    return true;
  }

  bool measure(const std::vector<size_t>& batch, int runs, double share) {
    std::vector<Schedule> schedules;
    for (size_t i : batch) schedules.push_back(trials_[i].schedule);
    std::optional<std::vector<Sample>> samples;
    if (journal_) samples = journal_->next(schedules, runs);
    if (!samples) {
      bool over = options_.budget_s > 0 && measurer_.clock_s() > share * options_.budget_s;
      // The first measurement is always made: without it there is no answer at all.
      if (options_.stop() || (over && trials_[0].runs > 0)) return false;
      options_.progress(share_done(), schedules.back().describe());
      double start_s = measurer_.clock_s();
      samples = measurer_.measure(schedules, runs);
      run_s_ = (measurer_.clock_s() - start_s) / (runs * static_cast<double>(schedules.size()));
      if (journal_) journal_->add(schedules, runs, *samples);
    }
    note(batch, *samples, runs);
    return true;
  }

  double share_done() const {
    if (options_.budget_s > 0) return std::min(1., measurer_.clock_s() / options_.budget_s);
    double seen = 0;
    for (const Trial& t : trials_) seen += is_known(t.rank);
    return seen / static_cast<double>(trials_.size());
  }

  void note(const std::vector<size_t>& batch, const std::vector<Sample>& samples, int runs) {
    // Everything is held against the default: without it there is nothing to search.
    if (samples[0].ms.empty())
      throw Error(fmt::format("the default schedule cannot be measured: {}",
                              samples[0].error.empty() ? "no time" : samples[0].error));
    std::vector<double> noises;
    for (size_t n = 0; n < batch.size(); ++n) {
      Trial& trial = trials_[batch[n]];
      const Sample& sample = samples[n];
      if (sample.ms.empty()) {
        trial.error = sample.error.empty() ? "no time" : sample.error;
        trial.runs = 0;
        continue;
      }
      noises.push_back(sample.noise);
      double sum = 0;
      for (double ratio : sample.ratio) sum += std::log(ratio);
      Score& score = scores_[batch[n]];
      score.weighted += runs * sum / static_cast<double>(sample.ms.size());
      score.weight += runs;
      score.variance += runs * sample.noise * runs * sample.noise;
      trial.ratio = std::exp(score.weighted / score.weight);
      trial.noise = std::sqrt(score.variance) / score.weight;
      trial.ms = sample.ms;
      trial.runs += runs;
    }
    std::sort(noises.begin(), noises.end());
    noise_ = noises[noises.size() / 2];
  }

  struct Score {
    double weighted = 0, weight = 0, variance = 0;
  };
  Measurer& measurer_;
  Journal* journal_;
  const SearchOptions& options_;
  std::vector<Trial> trials_;
  std::vector<Score> scores_;
  double noise_ = 0;
  double run_s_ = 0;  // that a run of one schedule took, in the last measurement
};

}  // namespace

SearchResult search(const std::vector<Schedule>& space, Measurer& measurer, Journal* journal,
                    const SearchOptions& options) {
  return Search(space, measurer, journal, options).run();
}

}  // namespace linnet::autotune
