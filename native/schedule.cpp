// Jobs over systems, run to end. Free slots are counts; equal input gives equal output to the last bit.
#include "schedule.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "class_times.h"
#include "schedule_plan.h"

namespace apportion {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kUnknownSigma = 1.0;  // of a prediction that was wrong though it claimed to be exact
constexpr double kPatience = 2;        // times what a job would take elsewhere, before it is started again there
constexpr double kLeastMore = 1e-3;    // of what it has had, that a job which outlived its prediction needs at least

// Slots of one system and the instants at which they become free. Time must not go back between calls.
class Frees {
public:
    explicit Frees(int64_t free) : free_(free) {}

    // The instant at which so many slots are free, not before `now`.
    double earliest(int64_t width, double now) {
        while (!heap_.empty() && heap_.front().time <= now) {
            free_ += heap_.front().count;
            pop();
        }
        if (free_ >= width) return now;
        width -= free_;
        if (!heap_.empty() && heap_.front().count >= width) return heap_.front().time;
        return walk(width);
    }

    // Take the slots that become free soonest, until then.
    void take(int64_t width, double until) {
        const int64_t count = width;
        const int64_t at_once = std::min(free_, width);
        free_ -= at_once;
        width -= at_once;
        while (width > 0) {
            Entry& top = heap_.front();
            if (top.count > width) {
                top.count -= width;
                break;
            }
            width -= top.count;
            pop();
        }
        add(count, until);
    }

    void add(int64_t count, double until) {
        heap_.push_back({until, count});
        std::push_heap(heap_.begin(), heap_.end(), Later{});
    }

private:
    struct Entry {
        double time;
        int64_t count;
    };
    struct Later {
        bool operator()(const Entry& left, const Entry& right) const { return left.time > right.time; }
    };

    void pop() {
        std::pop_heap(heap_.begin(), heap_.end(), Later{});
        heap_.pop_back();
    }

    // The least entries in order, by a small heap of places in the large one, which stays as it is.
    double walk(int64_t width) {
        if (heap_.empty()) return kInfinity;
        auto later = [this](size_t left, size_t right) { return heap_[left].time > heap_[right].time; };
        places_.assign(1, 0);
        while (!places_.empty()) {
            std::pop_heap(places_.begin(), places_.end(), later);
            const size_t place = places_.back();
            places_.pop_back();
            width -= heap_[place].count;
            if (width <= 0) return heap_[place].time;
            for (size_t child = 2 * place + 1; child <= 2 * place + 2; ++child)
                if (child < heap_.size()) {
                    places_.push_back(child);
                    std::push_heap(places_.begin(), places_.end(), later);
                }
        }
        return kInfinity;
    }

    std::vector<Entry> heap_;
    std::vector<size_t> places_;
    int64_t free_;
};

using Running = std::set<std::pair<double, int64_t>>;  // (end as it is believed, job)

// The slots of one system from now on, for jobs placed one after another into the future without filling holes.
// Running jobs are read as far as they are needed.
class Line {
public:
    void reset(double now, int64_t free, const Running& running, const int64_t* width) {
        entries_.clear();
        head_ = 0;
        now_ = now;
        if (free > 0) entries_.push_back({now, free});
        next_ = running.begin();
        end_ = running.end();
        width_ = width;
    }

    bool open() const { return head_ < entries_.size() && entries_[head_].first <= now_; }

    double earliest(int64_t width) {
        size_t at = head_;
        while (true) {
            const double loaded_before = next_ == end_ ? kInfinity : next_->first;
            if (at < entries_.size() && entries_[at].first <= loaded_before) {
                width -= entries_[at].second;
                if (width <= 0) return entries_[at].first;
                ++at;
            } else if (next_ != end_) {
                entries_.insert(entries_.begin() + at, {next_->first, width_[next_->second]});
                ++next_;
            } else {
                return kInfinity;
            }
        }
    }

    // What will be free at an instant for which `earliest` was asked.
    int64_t free_at(double instant) {
        while (next_ != end_ && next_->first <= instant) {
            auto place = std::upper_bound(entries_.begin() + head_, entries_.end(), next_->first,
                                          [](double time, const auto& entry) { return time < entry.first; });
            entries_.insert(place, {next_->first, width_[next_->second]});
            ++next_;
        }
        int64_t count = 0;
        for (size_t at = head_; at < entries_.size() && entries_[at].first <= instant; ++at) count += entries_[at].second;
        return count;
    }

    void take(int64_t width, double until) {
        const int64_t count = width;
        earliest(width);
        while (width > 0 && head_ < entries_.size()) {
            if (entries_[head_].second > width) {
                entries_[head_].second -= width;
                break;
            }
            width -= entries_[head_].second;
            ++head_;
        }
        auto place = std::upper_bound(entries_.begin() + head_, entries_.end(), until,
                                      [](double time, const auto& entry) { return time < entry.first; });
        entries_.insert(place, {until, count});
    }

private:
    std::vector<std::pair<double, int64_t>> entries_;
    size_t head_ = 0;
    double now_ = 0;
    Running::const_iterator next_, end_;
    const int64_t* width_ = nullptr;
};

// Free slots of one system over time, with holes.
class Profile {
public:
    void reset(double now, int64_t free, const Running& running, const int64_t* width) {
        steps_.assign(1, {now, free});
        for (const auto& [end, job] : running) {
            if (end > steps_.back().first)
                steps_.push_back({end, steps_.back().second + width[job]});
            else
                steps_.back().second += width[job];
        }
    }

    bool open() const { return steps_.front().second > 0; }

    double earliest(int64_t width, double seconds) const {
        size_t at = 0;
        while (at < steps_.size()) {
            if (steps_[at].second < width) {
                ++at;
                continue;
            }
            const double until = steps_[at].first + seconds;
            size_t last = at + 1;
            while (last < steps_.size() && steps_[last].first < until && steps_[last].second >= width) ++last;
            if (last == steps_.size() || steps_[last].first >= until) return steps_[at].first;
            at = last + 1;
        }
        return kInfinity;
    }

    void take(int64_t width, double start, double until) {
        const size_t first = cut(start), last = cut(until);
        for (size_t at = first; at < last; ++at) steps_[at].second -= width;
    }

private:
    size_t cut(double time) {
        auto place = std::lower_bound(steps_.begin(), steps_.end(), time,
                                      [](const auto& step, double value) { return step.first < value; });
        const size_t at = place - steps_.begin();
        if (place == steps_.end() || place->first != time) {
            const int64_t before = at == 0 ? 0 : steps_[at - 1].second;
            steps_.insert(place, {time, before});
        }
        return at;
    }

    std::vector<std::pair<double, int64_t>> steps_;
};

struct Waiting {
    int32_t fresh;  // 0 once it has aged
    double key;
    int64_t turn;
    int64_t job;
    bool operator<(const Waiting& other) const {
        if (fresh != other.fresh) return fresh < other.fresh;
        if (key != other.key) return key < other.key;
        return turn < other.turn;
    }
};
using Queue = std::set<Waiting>;

struct Later {
    template <typename T>
    bool operator()(const T& left, const T& right) const {
        return left > right;
    }
};
template <typename T>
using Soonest = std::priority_queue<T, std::vector<T>, Later>;

class Simulation {
public:
    Simulation(const ScheduleJobs& jobs, const ScheduleOptions& options)
        : jobs_(jobs), options_(options), systems_(options.slots.size()), free_(options.slots) {
        result_.system.assign(jobs.count, -1);
        result_.start.assign(jobs.count, 0);
        result_.end.assign(jobs.count, 0);
        result_.predicted.assign(jobs.count, 0);
        result_.killed.assign(jobs.count, 0);
        running_.resize(systems_);
        lines_.resize(systems_);
        profiles_.resize(systems_);
        touched_.assign(systems_, 0);
        queues_.resize(options.late ? 1 : systems_);
        ahead_.assign(systems_, Frees(0));
        ahead_known_.assign(systems_, 0);
        if (jobs.limit) limit_.assign(jobs.limit, jobs.limit + jobs.count);
        if (options.learn)
            learned_.emplace(options.class_sigma, options.class_deviation, options.trust, options.programs, systems_,
                             options.repeat_sigma);
        if (options.explore > 0) {
            arrived_of_.assign(options.programs, 0);
            waiting_of_.assign(options.programs, 0);
            running_of_.assign(options.programs * systems_, 0);
            pledged_.assign(jobs.count, 0.0);
            impatient_.assign(jobs.count, 0);
        }
        waiting_.resize(jobs.count);
        if (options.backfill != Backfill::none) reserved_.assign(jobs.count, -1.0);
        for (int64_t slots : options.slots) all_slots_ += slots;
        if (options.plan) plan_.emplace(jobs, options);
    }

    ScheduleResult run() {
        int64_t next = 0;
        while (next < jobs_.count || !ends_.empty()) {
            double now = kInfinity;
            if (next < jobs_.count) now = jobs_.arrival[next];
            if (!ends_.empty()) now = std::min(now, ends_.top().first);
            if (!starts_.empty()) now = std::min(now, starts_.top().first);
            now_ = now;
            again_.clear();
            while (!ends_.empty() && ends_.top().first == now) {
                const int64_t job = ends_.top().second;
                ends_.pop();
                finish(job);
            }
            for (int64_t job : again_) arrive(job);
            while (next < jobs_.count && jobs_.arrival[next] == now) arrive(next++);
            age();
            if (plan_) decide_planned();
            if (options_.late && !plan_) decide_late();
            for (size_t system = 0; !options_.late && system < systems_; ++system)
                if (touched_[system]) decide_bound(system);
            std::fill(touched_.begin(), touched_.end(), 0);
        }
        return std::move(result_);
    }

private:
    size_t cell(int64_t job, size_t system) const { return job * systems_ + system; }

    bool eligible(int64_t job, size_t system) const {
        if (jobs_.only && jobs_.only[job] >= 0) return static_cast<size_t>(jobs_.only[job]) == system;
        return jobs_.width[job] <= options_.slots[system] && std::isfinite(jobs_.predicted[cell(job, system)]);
    }

    bool learns(int64_t job) const { return learned_ && jobs_.program[job] >= 0; }

    double sigma(int64_t job, size_t system) const {
        if (learns(job) && jobs_.sigma) return learned_->sigma(jobs_.program[job], system);
        return jobs_.sigma ? jobs_.sigma[cell(job, system)] : 0.0;
    }

    // What the job is believed to take, by what was predicted and what its class has shown since.
    double belief(int64_t job, size_t system) const {
        const double predicted = jobs_.predicted[cell(job, system)];
        if (!learns(job)) return predicted;
        const double shift = learned_->mean(jobs_.program[job], system);
        return shift == 0 ? predicted : predicted * std::exp2(shift);
    }

    double cautious(int64_t job, size_t system) const {
        const double seconds = belief(job, system);
        return options_.quantile_z == 0 ? seconds : seconds * std::exp2(options_.quantile_z * sigma(job, system));
    }

    double limit(int64_t job) const { return limit_.empty() ? kInfinity : limit_[job]; }

    // For reservations: what the scheduler trusts.
    double reserved(int64_t job, size_t system) const {
        const double most = limit(job);
        if (options_.by_limit && std::isfinite(most)) return most;
        return std::min(cautious(job, system), most);
    }

    Queue& queue_of(size_t system) { return queues_[options_.late ? 0 : system]; }

    void arrive(int64_t job) {
        size_t system = 0;
        if (!options_.late) {
            if (jobs_.only && jobs_.only[job] >= 0)
                system = jobs_.only[job];
            else
                system = soonest(job);
            result_.system[job] = static_cast<int32_t>(system);
        }
        const bool again = !impatient_.empty() && impatient_[job] == 2;  // it keeps its place
        Waiting entry{1, jobs_.key ? jobs_.key[job] : 0.0, again ? waiting_[job].turn : turn_++, job};
        waiting_[job] = entry;
        queue_of(system).insert(entry);
        if (plan_) {
            plan_->arrive(job, now_);
            starts_.push({plan_->of(job).start, job});
        }
        if (jobs_.age && std::isfinite(jobs_.age[job])) ages_.push({now_ + jobs_.age[job], job});
        if (!waiting_of_.empty() && jobs_.program[job] >= 0) {
            ++waiting_of_[jobs_.program[job]];
            if (!again) ++arrived_of_[jobs_.program[job]];
            waiting_work_ += least_work(job);
        }
        touched_[system] = 1;
        any_ = true;
    }

    void age() {
        while (!ages_.empty() && ages_.top().first <= now_) {
            const int64_t job = ages_.top().second;
            ages_.pop();
            if (result_.predicted[job] > 0) continue;  // it has started
            Queue& queue = queue_of(options_.late ? 0 : result_.system[job]);
            queue.erase(waiting_[job]);
            waiting_[job].fresh = 0;
            waiting_[job].key = 0;
            queue.insert(waiting_[job]);
        }
    }

    // Where the job would end first, behind all that wait there now.
    size_t soonest(int64_t job) {
        size_t best = systems_;
        double least = kInfinity, seconds_there = 0;
        for (size_t system = 0; system < systems_; ++system) {
            if (!eligible(job, system)) continue;
            refresh(system);
            double start = now_;
            const Queue& queue = queues_[system];
            if (!queue.empty() || free_[system] < jobs_.width[job]) {
                if (!ahead_known_[system]) look_ahead(system);
                start = ahead_[system].earliest(jobs_.width[job], now_);
            }
            const double seconds = cautious(job, system);
            if (best == systems_ || start + seconds < least)
                best = system, least = start + seconds, seconds_there = seconds;
        }
        (void)seconds_there;
        if (ahead_known_[best]) {
            ahead_[best].earliest(jobs_.width[job], now_);
            ahead_[best].take(jobs_.width[job], least);
        }
        return best;
    }

    void look_ahead(size_t system) {
        Frees frees(free_[system]);
        for (const auto& [end, job] : running_[system]) frees.add(jobs_.width[job], end);
        for (const Waiting& waiting : queues_[system]) {
            const double start = frees.earliest(jobs_.width[waiting.job], now_);
            frees.take(jobs_.width[waiting.job], start + reserved(waiting.job, system));
        }
        ahead_[system] = std::move(frees);
        ahead_known_[system] = 1;
    }

    // Jobs that run longer than believed are believed to need a unit of 2^sigma more of what they have had.
    void refresh(size_t system) {
        Running& running = running_[system];
        while (!running.empty() && running.begin()->first <= now_) {
            const int64_t job = running.begin()->second;
            running.erase(running.begin());
            const double had = now_ - result_.start[job];
            double spread = sigma(job, system);
            if (spread == 0) spread = kUnknownSigma;
            double end = now_ + std::max(had * (std::exp2(spread) - 1), 1e-6 * (1 + now_ - result_.start[job]));
            if (learns(job)) {
                const int64_t program = jobs_.program[job];
                learned_->outlived(program, system, std::log2(had / jobs_.predicted[cell(job, system)]));
                end = std::max(now_ + had * kLeastMore, result_.start[job] + belief(job, system));
            }
            end = std::min(end, result_.start[job] + limit(job));
            if (!(end > now_)) end = std::nextafter(now_, kInfinity);
            believed_end_of(job) = end;
            running.insert({end, job});
            ahead_known_[system] = 0;
        }
    }

    double& believed_end_of(int64_t job) { return result_.end[job]; }  // until the job ends

    void begin(int64_t job, size_t system, double patience = kInfinity) {
        const int64_t width = jobs_.width[job];
        const double seconds = belief(job, system);
        result_.system[job] = static_cast<int32_t>(system);
        result_.start[job] = now_;
        result_.predicted[job] = seconds;
        if (!reserved_.empty() && reserved_[job] >= 0) {
            result_.head_delay = std::max(result_.head_delay, now_ - reserved_[job]);
        }
        free_[system] -= width;
        const double believed = now_ + reserved(job, system);
        believed_end_of(job) = believed;
        running_[system].insert({believed, job});
        const double most = limit(job);
        const double truth = jobs_.truth[cell(job, system)];
        double ran = std::min(truth, most);
        if (std::isfinite(patience)) {
            pledged_[job] = patience * width;
            pledged_seconds_ += pledged_[job];
            if (patience < ran) {
                ran = patience;
                impatient_[job] = 1;
            }
        }
        ends_.push({now_ + ran, job});
        if (!waiting_of_.empty() && jobs_.program[job] >= 0) {
            --waiting_of_[jobs_.program[job]];
            waiting_work_ -= least_work(job);
            ++running_of_[jobs_.program[job] * systems_ + system];
        }
    }

    void finish(int64_t job) {
        const size_t system = result_.system[job];
        const double believed = believed_end_of(job);
        running_[system].erase({believed, job});
        free_[system] += jobs_.width[job];
        if (believed != now_) ahead_known_[system] = 0;
        touched_[system] = 1;
        any_ = true;
        if (!pledged_.empty() && pledged_[job] > 0) {
            pledged_seconds_ -= pledged_[job];
            pledged_[job] = 0;
            if (impatient_[job] == 1) {
                start_elsewhere(job, system);
                return;
            }
        }
        const double truth = jobs_.truth[cell(job, system)];
        if (plan_ && truth != jobs_.predicted[cell(job, system)]) unplan();
        const bool cut = truth > limit(job);
        if (!running_of_.empty() && jobs_.program[job] >= 0) --running_of_[jobs_.program[job] * systems_ + system];
        learn(job, system, cut ? limit(job) : truth, cut);
        result_.end[job] = now_;
        result_.killed[job] = cut;
        if (cut) {
            result_.lost_slot_seconds += jobs_.width[job] * (now_ - result_.start[job]);
            if (options_.requeue) {
                limit_[job] *= 2;
                result_.killed[job] = 0;
                result_.predicted[job] = 0;
                again_.push_back(job);
            }
        }
    }

    // The job has outlived what it would take elsewhere, on a system where its class had never ended.
    void start_elsewhere(int64_t job, size_t system) {
        if (!running_of_.empty() && jobs_.program[job] >= 0) --running_of_[jobs_.program[job] * systems_ + system];
        learn(job, system, now_ - result_.start[job], true);
        const double lost = jobs_.width[job] * (now_ - result_.start[job]);
        result_.lost_slot_seconds += lost;
        explored_seconds_ += lost;
        ++result_.restarted;
        result_.predicted[job] = 0;
        impatient_[job] = 2;  // once is enough
        again_.push_back(job);
    }

    void learn(int64_t job, size_t system, double seconds, bool cut) {
        if (!learns(job)) return;
        const double predicted = jobs_.predicted[cell(job, system)];
        if (!std::isfinite(predicted)) return;
        const double error = std::log2(seconds / predicted);
        if (cut)  // at least as long as that
            learned_->outlived(jobs_.program[job], system, error);
        else
            learned_->add(jobs_.program[job], system, error);
        if (!options_.late) std::fill(ahead_known_.begin(), ahead_known_.end(), 0);
    }

    bool looked_at(int64_t looked) const { return options_.depth == 0 || looked < options_.depth; }

    void decide_bound(size_t system) {
        Queue& queue = queues_[system];
        if (queue.empty() || free_[system] == 0) return;
        if (options_.backfill == Backfill::conservative) {
            decide_conservative(system);
            return;
        }
        while (!queue.empty() && jobs_.width[queue.begin()->job] <= free_[system]) {
            const int64_t job = queue.begin()->job;
            queue.erase(queue.begin());
            begin(job, system);
        }
        if (options_.backfill != Backfill::easy || queue.size() < 2 || free_[system] == 0) return;
        refresh(system);
        const int64_t head = queue.begin()->job;
        int64_t spare = free_[system];
        double shadow = now_;
        for (auto at = running_[system].begin(); at != running_[system].end(); ++at) {
            if (spare >= jobs_.width[head] && at->first > shadow) break;
            shadow = at->first;
            spare += jobs_.width[at->second];
        }
        spare -= jobs_.width[head];
        if (reserved_[head] < 0) reserved_[head] = shadow;
        int64_t looked = 1;
        for (auto at = std::next(queue.begin()); at != queue.end() && free_[system] > 0 && looked_at(looked); ++looked) {
            const int64_t job = at->job;
            const bool ends_before = now_ + reserved(job, system) <= shadow;
            if (jobs_.width[job] <= free_[system] && (ends_before || jobs_.width[job] <= spare)) {
                if (!ends_before) spare -= jobs_.width[job];
                at = queue.erase(at);
                begin(job, system);
                ahead_known_[system] = 0;
            } else {
                ++at;
            }
        }
    }

    void decide_conservative(size_t system) {
        refresh(system);
        Profile& profile = profiles_[system];
        profile.reset(now_, free_[system], running_[system], jobs_.width);
        Queue& queue = queues_[system];
        int64_t looked = 0;
        for (auto at = queue.begin(); at != queue.end() && profile.open() && looked_at(looked); ++looked) {
            const int64_t job = at->job;
            const double seconds = reserved(job, system);
            const double start = profile.earliest(jobs_.width[job], seconds);
            profile.take(jobs_.width[job], start, start + seconds);
            if (start <= now_) {
                at = queue.erase(at);
                begin(job, system);
                ahead_known_[system] = 0;
            } else {
                if (reserved_[job] < 0) reserved_[job] = start;
                ++at;
            }
        }
    }

    struct Option {
        size_t system;
        double start, finish;
        double patience = kInfinity;  // seconds after which the job is started again elsewhere
    };

    void decide_late() {
        Queue& queue = queues_[0];
        if (queue.empty() || !any_) return;
        any_ = false;
        bool room = false;
        for (size_t system = 0; system < systems_; ++system) room = room || free_[system] > 0;
        if (!room) return;
        const bool holes = options_.backfill == Backfill::conservative;
        const bool easy = options_.backfill == Backfill::easy;
        for (size_t system = 0; system < systems_; ++system) {
            refresh(system);
            if (holes)
                profiles_[system].reset(now_, free_[system], running_[system], jobs_.width);
            else
                lines_[system].reset(now_, free_[system], running_[system], jobs_.width);
        }
        shadow_.assign(systems_, kInfinity);
        spare_.assign(systems_, 0);
        int64_t looked = 0;
        for (auto at = queue.begin(); at != queue.end() && looked_at(looked); ++looked) {
            if (!open(holes, easy)) break;
            const int64_t job = at->job;
            const int64_t width = jobs_.width[job];
            options_of_.clear();
            for (size_t system = 0; system < systems_; ++system) {
                if (!eligible(job, system)) continue;
                const double seconds = reserved(job, system);
                double start = holes ? profiles_[system].earliest(width, seconds) : lines_[system].earliest(width);
                if (easy && start > now_ && width <= free_[system] &&
                    (std::isinf(shadow_[system]) || now_ + seconds <= shadow_[system] || width <= spare_[system]))
                    start = now_;
                options_of_.push_back({system, start, start + cautious(job, system), kInfinity});
            }
            const Option chosen = choose(job);
            const double seconds = reserved(job, chosen.system);
            if (chosen.start <= now_) {
                if (easy && !std::isinf(shadow_[chosen.system]) && now_ + seconds > shadow_[chosen.system])
                    spare_[chosen.system] -= width;
                if (holes)
                    profiles_[chosen.system].take(width, now_, now_ + seconds);
                else
                    lines_[chosen.system].take(width, now_ + seconds);
                at = queue.erase(at);
                begin(job, chosen.system, chosen.patience);
                continue;
            }
            ++at;
            if (options_.list) continue;
            if (!reserved_.empty() && reserved_[job] < 0) reserved_[job] = chosen.start;
            if (holes) {
                profiles_[chosen.system].take(width, chosen.start, chosen.start + seconds);
            } else {
                if (easy && std::isinf(shadow_[chosen.system])) {
                    shadow_[chosen.system] = chosen.start;
                    spare_[chosen.system] = lines_[chosen.system].free_at(chosen.start) - width;
                }
                lines_[chosen.system].take(width, chosen.start + seconds);
            }
        }
    }

    // Jobs begin as planned, until one takes longer or shorter than was predicted.
    void decide_planned() {
        for (size_t system = 0; plan_ && system < systems_; ++system)
            if (!running_[system].empty() && running_[system].begin()->first <= now_) unplan();
        if (!plan_) return;
        Queue& queue = queues_[0];
        int64_t looked = 0;
        if (any_ && plan_->holes())
            for (auto at = queue.begin(); at != queue.end() && looked_at(looked); ++at, ++looked)
                if (plan_->of(at->job).start > now_ && plan_->improve(at->job, now_))
                    starts_.push({plan_->of(at->job).start, at->job});
        any_ = false;
        while (plan_ && !starts_.empty() && starts_.top().first <= now_) {
            const auto [start, job] = starts_.top();
            starts_.pop();
            const Plan::Place& place = plan_->of(job);
            if (place.start != start || result_.predicted[job] > 0) continue;  // it was moved
            if (free_[place.system] < jobs_.width[job]) {
                unplan();
                break;
            }
            queue.erase(waiting_[job]);
            begin(job, place.system);
        }
    }

    void unplan() {
        plan_.reset();
        starts_ = {};
        any_ = true;
    }

    bool open(bool holes, bool easy) const {
        for (size_t system = 0; system < systems_; ++system)
            if (easy ? free_[system] > 0 : holes ? profiles_[system].open() : lines_[system].open()) return true;
        return false;
    }

    Option choose(int64_t job) {
        Option best = options_of_.front();
        for (const Option& option : options_of_)
            if (option.finish < best.finish) best = option;
        if (options_.tie > 0) {
            const Option least = best;
            for (const Option& option : options_of_) {
                if (option.system == least.system) continue;
                const double apart = std::log2((option.finish - now_) / (least.finish - now_));
                const double pair = std::hypot(sigma(job, option.system), sigma(job, least.system));
                if (apart < options_.tie * pair && option.start < best.start) best = option;
            }
        }
        if (options_.explore > 0) {
            best = explored(job, best);
            best.patience = patience(job, best);
        }
        return best;
    }

    // How long the first run of a class on a system is worth waiting for: as long as it would take elsewhere.
    double patience(int64_t job, const Option& chosen) const {
        if (!learns(job) || chosen.start > now_ || impatient_[job] == 2) return kInfinity;
        const int64_t program = jobs_.program[job];
        if (learned_->seen(program, chosen.system) || sigma(job, chosen.system) <= 0) return kInfinity;
        double elsewhere = kInfinity;
        for (const Option& option : options_of_)
            if (option.system != chosen.system)
                elsewhere = std::min(elsewhere, option.start - now_ + expected(belief(job, option.system), sigma(job, option.system)));
        elsewhere *= kPatience;
        return affordable(elsewhere * jobs_.width[job]) ? elsewhere : kInfinity;
    }

    // The budget is a part of all slot time, as far as the end can be seen.
    bool affordable(double slot_seconds) const {
        const double whole = all_slots_ * (now_ - jobs_.arrival[0]) + waiting_work_;
        return explored_seconds_ + pledged_seconds_ + slot_seconds <= options_.explore * whole;
    }

    // A system that the job's class has never run on, if what that would teach is worth more than it costs. Of a
    // class, as many jobs are expected to come as have come.
    Option explored(int64_t job, const Option& best) {
        if (!learns(job)) return best;
        const int64_t program = jobs_.program[job];
        const double to_come = static_cast<double>(waiting_of_[program] - 1 + arrived_of_[program]);
        Option chosen = best;
        double most = 0;
        const double here = belief(job, best.system);
        for (const Option& option : options_of_) {
            if (option.system == best.system || learned_->seen(program, option.system) || option.start > now_) continue;
            if (running_of_[program * systems_ + option.system] > 0) continue;
            const double spread = sigma(job, option.system);
            if (spread <= 0) continue;
            // If it takes longer than elsewhere it is started again there, and so much is lost.
            const double elsewhere = best.finish - now_, median = belief(job, option.system);
            const double gain = saved(here, median, spread) * to_come;
            const double cost = elsewhere * normal(std::log2(median / elsewhere) / spread);
            if (gain > cost && gain - cost > most) most = gain - cost, chosen = option;
        }
        if (chosen.system == best.system) return best;
        if (!affordable((best.finish - now_) * jobs_.width[job])) return best;
        ++result_.explored;
        return chosen;
    }

    // Expected value of max(0, here - there) with log2(there) normal around log2(median).
    static double saved(double here, double median, double spread) {
        const double sigma = spread * std::log(2.0);
        const double z = (std::log(here) - std::log(median)) / sigma;
        return here * normal(z) - expected(median, spread) * normal(z - sigma);
    }

    static double normal(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

    static double expected(double median, double spread) {
        const double sigma = spread * std::log(2.0);
        return median * std::exp(sigma * sigma / 2);
    }

    double least_work(int64_t job) const {
        double least = kInfinity;
        for (size_t system = 0; system < systems_; ++system)
            if (eligible(job, system)) least = std::min(least, jobs_.predicted[cell(job, system)]);
        return least * jobs_.width[job];
    }

    const ScheduleJobs& jobs_;
    const ScheduleOptions& options_;
    const size_t systems_;
    std::vector<int64_t> free_;
    ScheduleResult result_;
    double now_ = 0;
    int64_t turn_ = 0;
    bool any_ = false;
    int64_t all_slots_ = 0;
    std::optional<Plan> plan_;
    Soonest<std::pair<double, int64_t>> ends_, ages_, starts_;
    std::vector<int64_t> again_;
    std::vector<Running> running_;
    std::vector<Queue> queues_;
    std::vector<Waiting> waiting_;
    std::vector<Line> lines_;
    std::vector<Profile> profiles_;
    std::vector<uint8_t> touched_;
    std::vector<Frees> ahead_;
    std::vector<uint8_t> ahead_known_;
    std::vector<double> limit_, reserved_;
    std::vector<double> shadow_;
    std::vector<int64_t> spare_;
    std::vector<Option> options_of_;
    mutable std::optional<ClassTimes> learned_;  // it works out beliefs when they are asked for
    std::vector<int64_t> arrived_of_, waiting_of_, running_of_;
    std::vector<double> pledged_;      // (N,): slot-seconds that its run may cost at most
    std::vector<uint8_t> impatient_;  // (N,): 1: to be started again, 2: was
    double explored_seconds_ = 0, pledged_seconds_ = 0, waiting_work_ = 0;
};

}  // namespace

ScheduleResult schedule_in_order(const ScheduleJobs& jobs, const ScheduleOptions& options) {
    ScheduleResult result;
    result.system.resize(jobs.count);
    result.start.resize(jobs.count);
    result.end.resize(jobs.count);
    result.predicted.resize(jobs.count);
    result.killed.assign(jobs.count, 0);
    const size_t systems = options.slots.size();
    std::vector<Frees> frees;
    for (int64_t slots : options.slots) frees.emplace_back(slots);
    for (int64_t job = 0; job < jobs.count; ++job) {
        const double* truth = jobs.truth + job * systems;
        const double now = jobs.arrival[job];
        const int64_t width = jobs.width[job];
        size_t chosen = 0;
        double start = now, least = kInfinity;
        if (jobs.only && jobs.only[job] >= 0) {
            chosen = jobs.only[job];
            start = frees[chosen].earliest(width, now);
        } else {
            for (size_t system = 0; system < systems; ++system) {
                if (width > options.slots[system] || !std::isfinite(truth[system])) continue;
                const double begun = frees[system].earliest(width, now);
                if (begun + truth[system] < least) chosen = system, start = begun, least = begun + truth[system];
            }
        }
        double seconds = truth[chosen];
        if (jobs.limit && seconds > jobs.limit[job]) {
            seconds = jobs.limit[job];
            result.killed[job] = 1;
            result.lost_slot_seconds += width * seconds;
        }
        frees[chosen].take(width, start + seconds);
        result.system[job] = static_cast<int32_t>(chosen);
        result.start[job] = start;
        result.end[job] = start + seconds;
        result.predicted[job] = jobs.predicted[job * systems + chosen];
    }
    return result;
}

ScheduleResult schedule_by_events(const ScheduleJobs& jobs, const ScheduleOptions& options) {
    return Simulation(jobs, options).run();
}

}  // namespace apportion
