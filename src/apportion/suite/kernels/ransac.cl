// RANSAC over vectors of an optical flow: each group tries a model made of two vectors, counts those that do not
// fit, and appends the model to a list when few enough do not.
kernel void ransac(global const float4 *flow, global const int2 *pairs, global int *candidates, global int *outliers,
                   global volatile int *found, int count, float error, int most, local int *misses) {
    int lane = get_local_id(0), lanes = get_local_size(0), trial = get_group_id(0);
    float4 a = flow[pairs[trial].x], b = flow[pairs[trial].y];
    // A zoom about a centre: v = scale * (p - centre), from two vectors, per axis.
    float2 span = b.xy - a.xy;
    int sound = fabs(span.x) > 0.25f && fabs(span.y) > 0.25f;
    float2 scale = sound ? (b.zw - a.zw) / span : (float2)(0.0f);
    float2 shift = a.zw - scale * a.xy;
    int missed = 0;
    for (int i = lane; i < count; i += lanes) {
        float4 vector = flow[i];
        float2 off = fabs(scale * vector.xy + shift - vector.zw);
        missed += off.x > error || off.y > error;
    }
    misses[lane] = missed;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane == 0) {
        int sum = 0;
        for (int k = 0; k < lanes; k++) sum += misses[k];
        if (sound && sum < most) {
            int place = atomic_inc(found);
            candidates[place] = trial;
            outliers[place] = sum;
        }
    }
}
