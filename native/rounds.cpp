// The rules of Gavel's simulator (Narayanan et al., OSDI 2020), as the README of its reference data states them.
#include "rounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace apportion {
namespace {

constexpr double kHeadStart = 180;  // seconds that each job is taken to have had on each system
constexpr int kTries = 5;           // of a job that cannot be divided over its slots

struct Claim {
    double priority, deficit, share;
    int64_t place;  // among the active jobs
};

struct Piece {
    double end;
    int64_t job;
    int32_t system;
    int64_t steps;
};

class Rounds {
public:
    Rounds(const RoundJobs& jobs, const RoundOptions& options, const Allocate& allocate, const Order& order)
        : jobs_(jobs), options_(options), allocate_(allocate), order_(order), systems_(options.slots.size()),
          left_(jobs.steps, jobs.steps + jobs.count), had_(jobs.count * systems_, kHeadStart),
          deficit_(jobs.count * systems_, 0.0), share_(jobs.count * systems_, 0.0), shared_(jobs.count, 0),
          tries_(jobs.count, 0), taken_(jobs.count, 0), total_(systems_, 0.0) {
        result_.start.assign(jobs.count, std::numeric_limits<double>::quiet_NaN());
        result_.end.assign(jobs.count, 0);
        result_.ran.assign(jobs.count * systems_, 0);
        result_.dropped.assign(jobs.count, 0);
    }

    RoundResult run() {
        now_ = jobs_.arrival[0];
        admit();
        while (!active_.empty() || next_ < jobs_.count) {
            if (changed_ && (now_ - asked_ >= options_.between_allocations || asked_ == 0)) allocate();
            choose();
            if (pieces_.empty()) {
                if (next_ < jobs_.count) {
                    now_ = jobs_.arrival[next_];
                    admit();
                } else {
                    // Nobody is left to wait for: whoever has no share is asked about at once.
                    if (++idle_ > 2) throw std::runtime_error("The policy gives none of the waiting jobs a share");
                    asked_ = 0;
                    changed_ = true;
                }
                continue;
            }
            idle_ = 0;
            ++result_.rounds;
            result_.pieces += static_cast<int64_t>(pieces_.size());
            book();
            admit();
        }
        return std::move(result_);
    }

private:
    size_t cell(int64_t job, size_t system) const { return job * systems_ + system; }

    void admit() {
        while (next_ < jobs_.count && jobs_.arrival[next_] <= now_) {
            active_.push_back(next_++);
            changed_ = true;
        }
    }

    void allocate() {
        const double passed = now_ - asked_;
        for (int64_t job : active_)
            for (size_t system = 0; system < systems_; ++system) {
                const size_t at = cell(job, system);
                deficit_[at] += share_[at] * passed - (had_[at] - kHeadStart);
                had_[at] = kHeadStart;
            }
        std::fill(total_.begin(), total_.end(), 0.0);
        for (size_t system = 0; system < systems_; ++system)
            for (size_t count = 0; count < active_.size(); ++count) total_[system] += kHeadStart;
        lefts_.clear();
        for (int64_t job : active_) lefts_.push_back(left_[job]);
        shares_.assign(active_.size() * systems_, 0.0);
        allocate_(now_, active_, lefts_, shares_);
        for (size_t place = 0; place < active_.size(); ++place) {
            for (size_t system = 0; system < systems_; ++system)
                share_[cell(active_[place], system)] = shares_[place * systems_ + system];
            shared_[active_[place]] = 1;
        }
        asked_ = now_;
        changed_ = false;
        ++result_.allocations;
    }

    void choose() {
        pieces_.clear();
        order_of_.clear();
        for (size_t system = 0; system < systems_; ++system) order_of_.push_back(static_cast<int32_t>(system));
        if (order_) order_(order_of_);
        int64_t untaken = static_cast<int64_t>(active_.size());
        for (int64_t job : active_) taken_[job] = 0;
        for (int32_t system : order_of_) {
            int64_t room = options_.slots[system];
            claims_.clear();
            for (size_t place = 0; place < active_.size(); ++place) {
                const int64_t job = active_[place];
                const size_t at = cell(job, system);
                double priority = 0;
                if (shared_[job] && share_[at] != 0 && jobs_.speed[at] != 0)
                    priority = share_[at] / (had_[at] / total_[system]);
                if (priority == 0 && !options_.fill) continue;
                claims_.push_back({priority, deficit_[at], share_[at], static_cast<int64_t>(place)});
            }
            std::sort(claims_.begin(), claims_.end(), [](const Claim& one, const Claim& other) {
                if (one.priority != other.priority) return one.priority > other.priority;
                if (one.deficit != other.deficit) return one.deficit > other.deficit;
                if (one.share != other.share) return one.share > other.share;
                return one.place < other.place;
            });
            for (const Claim& claim : claims_) {
                if (room == 0 || untaken == 0) break;
                const int64_t job = active_[claim.place];
                const double speed = jobs_.speed[cell(job, system)];
                if (taken_[job] || speed == 0 || jobs_.width[job] > room) continue;
                taken_[job] = 1;
                --untaken;
                room -= jobs_.width[job];
                if (!shared_[job]) continue;
                const int64_t whole = std::max<int64_t>(1, static_cast<int64_t>(std::floor(speed * options_.seconds)));
                const int64_t steps = std::min(whole, left_[job]);
                pieces_.push_back({now_ + static_cast<double>(steps) / speed, job, system, steps});
            }
        }
    }

    void book() {
        std::sort(pieces_.begin(), pieces_.end(), [](const Piece& one, const Piece& other) {
            return one.end != other.end ? one.end > other.end : one.job < other.job;
        });
        const double began = now_;
        now_ = pieces_.front().end;
        for (const Piece& piece : pieces_) {
            const size_t at = cell(piece.job, piece.system);
            const double booked = piece.end - ended_;
            had_[at] += booked;
            total_[piece.system] += booked;
            const bool indivisible = options_.drop && left_[piece.job] < jobs_.width[piece.job];
            if (std::isnan(result_.start[piece.job])) result_.start[piece.job] = began;
            if (indivisible) {
                if (++tries_[piece.job] < kTries) continue;
                result_.dropped[piece.job] = 1;
                left_[piece.job] = 0;
            } else {
                result_.ran[at] += piece.end - began;
                left_[piece.job] -= piece.steps;
            }
            if (left_[piece.job] == 0) {
                result_.end[piece.job] = piece.end;
                changed_ = true;
            }
        }
        ended_ = now_;
        active_.erase(std::remove_if(active_.begin(), active_.end(), [this](int64_t job) { return left_[job] == 0; }),
                      active_.end());
    }

    const RoundJobs& jobs_;
    const RoundOptions& options_;
    const Allocate& allocate_;
    const Order& order_;
    const size_t systems_;
    RoundResult result_;
    std::vector<int64_t> left_;
    std::vector<double> had_, deficit_, share_;
    std::vector<uint8_t> shared_;
    std::vector<int> tries_;
    std::vector<uint8_t> taken_;
    std::vector<double> total_, shares_;
    std::vector<int64_t> active_, lefts_;
    std::vector<int32_t> order_of_;
    std::vector<Claim> claims_;
    std::vector<Piece> pieces_;
    double now_ = 0, asked_ = 0, ended_ = 0;
    int64_t next_ = 0;
    int idle_ = 0;
    bool changed_ = false;
};

}  // namespace

RoundResult run_rounds(const RoundJobs& jobs, const RoundOptions& options, const Allocate& allocate, const Order& order) {
    return Rounds(jobs, options, allocate, order).run();
}

}  // namespace apportion
